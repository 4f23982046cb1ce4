// libgradwire_any.so: what is preloaded where it is not known which MPI a process will have, if any. It needs the C
// library alone, and nothing of it runs before the process calls one of MPI's functions that the drop-ins take over.
// Then it loads the drop-in for the MPI that is there, and hands on to it.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/mpi_libraries.hpp"
#include "plugins/mpi_any/names.h"

namespace {

enum Index : std::size_t {
#define GRADWIRE_INDEX(name, arguments) k_##name,
  GRADWIRE_NAMES(GRADWIRE_INDEX) kNames
};

constexpr std::array<const char*, kNames> kName{
#define GRADWIRE_TEXT(name, arguments) #name,
    GRADWIRE_NAMES(GRADWIRE_TEXT)};

constinit std::array<std::atomic<void*>, kNames> g_functions{};  // null: not yet looked for

bool is_loaded(std::string_view library) {  // a literal, which ends with a zero
  void* const found = ::dlopen(library.data(), RTLD_LAZY | RTLD_NOLOAD);
  return found != nullptr && ::dlclose(found) == 0;
}

template <std::size_t N>
bool any_is_loaded(const std::array<std::string_view, N>& libraries) {
  return std::any_of(libraries.begin(), libraries.end(), is_loaded);
}

// The file of this name beside this object.
void* load_beside(const char* name) {
  Dl_info self{};
  std::array<char, 4096> path{};
  if (::dladdr(g_functions.data(), &self) == 0 || self.dli_fname == nullptr) {
    return nullptr;
  }
  const std::string_view mine(self.dli_fname);
  const std::size_t folder = mine.rfind('/') == std::string_view::npos ? 0 : mine.rfind('/') + 1;
  if (folder + std::strlen(name) >= path.size()) {
    return nullptr;
  }
  std::memcpy(path.data(), mine.data(), folder);
  std::memcpy(path.data() + folder, name, std::strlen(name));
  void* loaded = ::dlopen(path.data(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's is of this thread
    std::fprintf(stderr, "gradwire: every call is passed through: %s\n", ::dlerror());
  }
  return loaded;
}

// A job may be linked with its drop-in, and there must be one.
void* load(const char* name) {
  void* linked = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  return linked != nullptr ? linked : load_beside(name);
}

// The drop-in for the MPI of this process; null where that is neither, or both.
void* drop_in() {
  static constinit std::atomic<bool> known{false};  // threads that come at once find the same
  static constinit std::atomic<void*> found{nullptr};
  if (!known.load(std::memory_order_acquire)) {
    const bool open_mpi = any_is_loaded(gradwire::kOpenMpiLibraries);
    const bool mpich = any_is_loaded(gradwire::kMpichLibraries);
    if (open_mpi != mpich) {
      found.store(load(open_mpi ? "libgradwire_mpi.so" : "libgradwire_mpich.so"));
    }
    known.store(true, std::memory_order_release);
  }
  return found;
}

// Of an MPI that only a module sees which was loaded later, as Python's are: RTLD_NEXT does not.
template <std::size_t N>
void* find_in(const std::array<std::string_view, N>& libraries, const char* name) {
  for (const std::string_view library : libraries) {
    void* const loaded = ::dlopen(library.data(), RTLD_LAZY | RTLD_NOLOAD);  // once a function: it may stay open
    void* const function = loaded == nullptr ? nullptr : ::dlsym(loaded, name);
    if (function != nullptr) {
      return function;
    }
  }
  return nullptr;
}

void* find(Index index) {
  void* const library = drop_in();
  void* function = library == nullptr ? nullptr : ::dlsym(library, kName[index]);
  if (function == nullptr) {
    function = ::dlsym(RTLD_NEXT, kName[index]);
  }
  if (function == nullptr) {
    function = find_in(gradwire::kOpenMpiLibraries, kName[index]);
  }
  if (function == nullptr) {
    function = find_in(gradwire::kMpichLibraries, kName[index]);
  }
  if (function == nullptr && index != k_gradwire_name) {
    std::fprintf(stderr, "gradwire: this process called %s and has no MPI that has it\n", kName[index]);
    std::abort();
  }
  return function;
}

// Where nothing knows gradwire_name, a name is dropped.
long ignore() { return 0; }

template <typename... Arguments>
inline long hand_on(Index index, Arguments... arguments) {
  void* function = g_functions[index].load(std::memory_order_acquire);
  if (function == nullptr) [[unlikely]] {
    function = find(index);
    function = function == nullptr ? reinterpret_cast<void*>(&ignore) : function;  // NOLINT: POSIX has them alike
    g_functions[index].store(function, std::memory_order_release);
  }
  return reinterpret_cast<long (*)(Arguments...)>(function)(arguments...);  // NOLINT
}

}  // namespace

// Handles are pointers in one library and ints in the other. Both are handed on as they came: wherever Linux runs in 64
// bits, an argument that is a pointer or an integer has a register or 8 bytes of the stack to itself.
static_assert(sizeof(long) == 8 && sizeof(void*) == 8);

#define GRADWIRE_PARAMETERS_0
#define GRADWIRE_PARAMETERS_1 long a
#define GRADWIRE_PARAMETERS_2 GRADWIRE_PARAMETERS_1, long b
#define GRADWIRE_PARAMETERS_3 GRADWIRE_PARAMETERS_2, long c
#define GRADWIRE_PARAMETERS_4 GRADWIRE_PARAMETERS_3, long d
#define GRADWIRE_PARAMETERS_5 GRADWIRE_PARAMETERS_4, long e
#define GRADWIRE_PARAMETERS_6 GRADWIRE_PARAMETERS_5, long f
#define GRADWIRE_PARAMETERS_7 GRADWIRE_PARAMETERS_6, long g
#define GRADWIRE_PARAMETERS_8 GRADWIRE_PARAMETERS_7, long h
#define GRADWIRE_ARGUMENTS_0
#define GRADWIRE_ARGUMENTS_1 , a
#define GRADWIRE_ARGUMENTS_2 GRADWIRE_ARGUMENTS_1, b
#define GRADWIRE_ARGUMENTS_3 GRADWIRE_ARGUMENTS_2, c
#define GRADWIRE_ARGUMENTS_4 GRADWIRE_ARGUMENTS_3, d
#define GRADWIRE_ARGUMENTS_5 GRADWIRE_ARGUMENTS_4, e
#define GRADWIRE_ARGUMENTS_6 GRADWIRE_ARGUMENTS_5, f
#define GRADWIRE_ARGUMENTS_7 GRADWIRE_ARGUMENTS_6, g
#define GRADWIRE_ARGUMENTS_8 GRADWIRE_ARGUMENTS_7, h

#define GRADWIRE_FUNCTION(name, arguments)                                                       \
  extern "C" __attribute__((visibility("default"))) long name(GRADWIRE_PARAMETERS_##arguments) { \
    return hand_on(k_##name GRADWIRE_ARGUMENTS_##arguments);                                     \
  }
GRADWIRE_NAMES(GRADWIRE_FUNCTION)
