// libgradwire_any.so is preloaded where it is not known which MPI a process will have, if any. It needs the C library
// alone, and nothing of it runs before the process calls one of MPI's functions that the drop-ins replace. Then it
// loads the drop-in for the MPI that is there, and forwards calls to it.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>

#include "base/loaded_objects.hpp"
#include "base/mpi_libraries.hpp"
#include "plugins/mpi_any/names.h"

#define GRADWIRE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Index : std::size_t {
#define GRADWIRE_INDEX(name, arguments) k_##name,
  GRADWIRE_NAMES(GRADWIRE_INDEX) kNames
};

constexpr std::array<const char*, kNames> kName{
#define GRADWIRE_TEXT(name, arguments) #name,
    GRADWIRE_NAMES(GRADWIRE_TEXT)};

constinit std::array<std::atomic<void*>, kNames> g_functions{};  // null: not searched yet

// The MPI that this process has loaded, in any way in which a library is loaded.
enum class Family : std::uint8_t { unknown, open_mpi, mpich, both };

bool is_loaded(std::string_view library) {  // a literal, which ends with a zero
  void* const found = ::dlopen(library.data(), RTLD_LAZY | RTLD_NOLOAD);
  return found != nullptr && ::dlclose(found) == 0;
}

template <std::size_t N>
bool any_is_loaded(const std::array<std::string_view, N>& libraries) {
  return std::any_of(libraries.begin(), libraries.end(), is_loaded);
}

// The answer stays once an MPI was found; before that a process such as Python may still load one.
Family family() {
  static constinit std::atomic<Family> known{Family::unknown};
  Family found = known.load(std::memory_order_acquire);
  if (found == Family::unknown) {
    const bool open_mpi = any_is_loaded(gradwire::kOpenMpiLibraries);
    const bool mpich = any_is_loaded(gradwire::kMpichLibraries);
    found = open_mpi && mpich ? Family::both : open_mpi ? Family::open_mpi : mpich ? Family::mpich : Family::unknown;
    known.store(found, std::memory_order_release);
  }
  return found;
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

// Loads the drop-in, unless the job is linked with it already, since there must be only one.
void* load(const char* name) {
  void* linked = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  return linked != nullptr ? linked : load_beside(name);
}

// The drop-in for the MPI of this process; null where it has none, or both kinds.
void* drop_in() {
  static constinit std::atomic<bool> known{false};  // threads that come at the same time find the same
  static constinit std::atomic<void*> found{nullptr};
  const Family has = family();
  if (has != Family::unknown && !known.load(std::memory_order_acquire)) {
    if (has != Family::both) {
      found.store(load(has == Family::open_mpi ? "libgradwire_mpi.so" : "libgradwire_mpich.so"));
    }
    known.store(true, std::memory_order_release);
  }
  return found;
}

// Searches the libraries with which the object of `caller` was linked: the loader would have found the function there
// without us, if it is in no library that all objects see.
void* find_beside(const void* caller, const char* name) {
  Dl_info info{};
  link_map* object = nullptr;
  if (::dladdr1(caller, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 || object == nullptr) {
    return nullptr;
  }
  void* const handle = ::dlopen(object->l_name[0] == '\0' ? nullptr : object->l_name, RTLD_LAZY | RTLD_NOLOAD);
  void* const function = handle == nullptr ? nullptr : ::dlsym(handle, name);
  if (handle != nullptr) {
    ::dlclose(handle);
  }
  return function != nullptr && !gradwire::is_of_gradwire(function) ? function : nullptr;
}

// The definition that the caller would get without gradwire: first those that all objects see, in link order, then
// those of the libraries that the caller was linked with; for an unknown caller then that of any object.
void* find_native(const char* name, const void* caller) {
  void* function = ::dlsym(RTLD_NEXT, name);
  if (function == nullptr || gradwire::is_of_gradwire(function)) {
    function = find_beside(caller, name);
  }
  return function != nullptr ? function : gradwire::find_function_in_loaded_objects(name);
}

void* stand_in_for(Index index, const void* caller);

void* find(Index index, const void* caller) {
  void* const library = drop_in();
  void* function = library == nullptr ? nullptr : ::dlsym(library, kName[index]);
  // dlsym also searches the libraries that the drop-in is linked with, and would skip tools that stand behind this
  // object.
  if (function == nullptr || !gradwire::is_of_gradwire(function)) {
    function = find_native(kName[index], caller);
  }
  return function != nullptr ? function : stand_in_for(index, caller);
}

// Used where no library has gradwire_name: the name is dropped.
long ignore() { return 0; }

[[noreturn]] void end_without(Index index) {
  std::fprintf(stderr, "gradwire: this process called %s and has no MPI that has it\n", kName[index]);
  std::abort();
}

void* function_of(Index index, const void* caller) {
  void* function = g_functions[index].load(std::memory_order_acquire);
  if (function == nullptr) [[unlikely]] {
    function = find(index, caller);
    if (function == nullptr && index == k_gradwire_name) {
      return reinterpret_cast<void*>(&ignore);  // NOLINT: POSIX has them alike. An MPI may still be loaded
    }
    if (function == nullptr) {
      end_without(index);
    }
    if (family() != Family::both) {  // with both, each caller has its own function
      g_functions[index].store(function, std::memory_order_release);
    }
  }
  return function;
}

template <typename... Arguments>
inline long hand_on(Index index, const void* caller, Arguments... arguments) {
  return reinterpret_cast<long (*)(Arguments...)>(function_of(index, caller))(arguments...);  // NOLINT
}

// Programs built for several MPIs, such as mpi4py's wheels, refer to MPI 4's functions weakly, and believe that they
// exist if their address is not null. This object defines them, so it must implement them for an MPI that lacks them.

// Calls MPI's error handler of this communicator; returns the code if the handler returns.
long raise(const char* name, long code, long comm, const void* caller) {
  std::fprintf(stderr, "gradwire: this MPI has no %s\n", name);
  if (void* const function = find_native("PMPI_Comm_call_errhandler", caller)) {
    reinterpret_cast<long (*)(long, long)>(function)(comm, code);  // NOLINT
  }
  return code;
}

constexpr long kErrCount = 2;                                            // MPI_ERR_COUNT of both families
long unsupported_code() { return family() == Family::mpich ? 44 : 52; }  // MPI_ERR_UNSUPPORTED_OPERATION

// Counts that MPI may read until a request is complete. They are kept for ever; jobs have few different ones.
struct KeptCounts {
  KeptCounts* next;
  std::size_t size;
  int* values;
};
constinit std::atomic<KeptCounts*> g_counts{nullptr};

// `counts` as ints, or null where one does not fit or there is no memory.
const int* narrow_counts(const std::int64_t* counts, std::size_t size) {
  const auto fits = [](std::int64_t count) { return count <= INT_MAX && count >= INT_MIN; };
  if (!std::all_of(counts, counts + size, fits)) {
    return nullptr;
  }
  for (const KeptCounts* kept = g_counts.load(std::memory_order_acquire); kept != nullptr; kept = kept->next) {
    if (kept->size == size && std::equal(counts, counts + size, kept->values)) {
      return kept->values;
    }
  }
  // NOLINTBEGIN(cppcoreguidelines-no-malloc): this object has no C++ runtime
  auto* const made = static_cast<KeptCounts*>(std::malloc(sizeof(KeptCounts)));
  auto* const values = static_cast<int*>(std::malloc((size == 0 ? 1 : size) * sizeof(int)));
  if (made == nullptr || values == nullptr) {
    std::free(made);
    std::free(values);
    return nullptr;
  }
  // NOLINTEND(cppcoreguidelines-no-malloc)
  std::transform(counts, counts + size, values, [](std::int64_t count) { return static_cast<int>(count); });
  *made = {.next = g_counts.load(std::memory_order_relaxed), .size = size, .values = values};
  while (!g_counts.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
  }
  return values;
}

enum class Counts : bool { one, array };

// Makes a call with large counts as the same call with ints, for an MPI that has only those. The third argument is the
// count, or the array of counts.
template <Index kLarge, Index kSmall, std::size_t kComm, Counts kCounts, typename... Arguments>
long narrow(Arguments... given) {
  const void* const caller = __builtin_return_address(0);
  std::array<long, sizeof...(given)> arguments{given...};
  const long comm = arguments[kComm];
  if (kCounts == Counts::one && (arguments[2] > INT_MAX || arguments[2] < INT_MIN)) {
    return raise(kName[kLarge], kErrCount, comm, caller);
  }
  if (kCounts == Counts::array) {
    int size = 0;
    void* const size_of = find_native("PMPI_Comm_size", caller);
    if (size_of == nullptr || reinterpret_cast<long (*)(long, int*)>(size_of)(comm, &size) != 0) {  // NOLINT
      return raise(kName[kLarge], kErrCount, comm, caller);
    }
    const auto* counts = reinterpret_cast<const std::int64_t*>(arguments[2]);  // NOLINT
    const int* const small = counts == nullptr ? nullptr : narrow_counts(counts, static_cast<std::size_t>(size));
    if (small == nullptr && counts != nullptr) {
      return raise(kName[kLarge], kErrCount, comm, caller);
    }
    arguments[2] = reinterpret_cast<long>(small);  // NOLINT
  }
  return std::apply([=](auto... each) { return hand_on(kSmall, caller, each...); }, arguments);
}

template <Index kMissing, std::size_t kComm, typename... Arguments>
long refuse(Arguments... given) {
  const std::array<long, sizeof...(given)> arguments{given...};
  return raise(kName[kMissing], unsupported_code(), arguments[kComm], __builtin_return_address(0));
}

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);  // NOLINT
}

#define GRADWIRE_NARROW(large, small, comm, counts, ...) \
  case k_##large:                                        \
    return address_of(&narrow<k_##large, k_##small, comm, Counts::counts, __VA_ARGS__>)
#define GRADWIRE_6_LONGS long, long, long, long, long, long
#define GRADWIRE_7_LONGS GRADWIRE_6_LONGS, long
#define GRADWIRE_8_LONGS GRADWIRE_7_LONGS, long

// Open MPI 4 has the persistent calls under the names of an extension.
template <Index kMissing>
void* persistent(const char* extension, const void* caller) {
  void* const function = find_native(extension, caller);
  return function != nullptr ? function : address_of(&refuse<kMissing, 5, GRADWIRE_8_LONGS>);
}

// The replacement for a function that this MPI lacks; null where the MPI must have it.
void* stand_in_for(Index index, const void* caller) {
  switch (index) {
    GRADWIRE_NARROW(MPI_Allreduce_c, MPI_Allreduce, 5, one, GRADWIRE_6_LONGS);
    GRADWIRE_NARROW(MPI_Reduce_c, MPI_Reduce, 6, one, GRADWIRE_7_LONGS);
    GRADWIRE_NARROW(MPI_Reduce_scatter_c, MPI_Reduce_scatter, 5, array, GRADWIRE_6_LONGS);
    GRADWIRE_NARROW(MPI_Reduce_scatter_block_c, MPI_Reduce_scatter_block, 5, one, GRADWIRE_6_LONGS);
    GRADWIRE_NARROW(MPI_Iallreduce_c, MPI_Iallreduce, 5, one, GRADWIRE_7_LONGS);
    GRADWIRE_NARROW(MPI_Ireduce_scatter_c, MPI_Ireduce_scatter, 5, array, GRADWIRE_7_LONGS);
    GRADWIRE_NARROW(MPI_Ireduce_scatter_block_c, MPI_Ireduce_scatter_block, 5, one, GRADWIRE_7_LONGS);
    GRADWIRE_NARROW(MPI_Allreduce_init_c, MPI_Allreduce_init, 5, one, GRADWIRE_8_LONGS);
    GRADWIRE_NARROW(MPI_Reduce_scatter_init_c, MPI_Reduce_scatter_init, 5, array, GRADWIRE_8_LONGS);
    GRADWIRE_NARROW(MPI_Reduce_scatter_block_init_c, MPI_Reduce_scatter_block_init, 5, one, GRADWIRE_8_LONGS);
    case k_MPI_Allreduce_init: return persistent<k_MPI_Allreduce_init>("MPIX_Allreduce_init", caller);
    case k_MPI_Reduce_scatter_init: return persistent<k_MPI_Reduce_scatter_init>("MPIX_Reduce_scatter_init", caller);
    case k_MPI_Reduce_scatter_block_init:
      return persistent<k_MPI_Reduce_scatter_block_init>("MPIX_Reduce_scatter_block_init", caller);
    case k_MPIX_Comm_revoke: return address_of(&refuse<k_MPIX_Comm_revoke, 0, long>);
    case k_MPIX_Comm_shrink: return address_of(&refuse<k_MPIX_Comm_shrink, 0, long, long>);
    default: return nullptr;
  }
}

}  // namespace

// Called by the drop-in that this object has loaded, which stands behind all libraries of the process: returns the next
// definition behind this object in link order, such as a profiler's; null where there is none.
GRADWIRE_EXPORT void* gradwire_any_next(const char* name) {
  void* const volatile next = ::dlsym(RTLD_NEXT, name);  // no tail call, which would ask for the caller's next one
  return next;
}

// Handles are pointers in one library and ints in the other. Both are passed on unchanged: on 64-bit Linux an argument
// that is a pointer or an integer has a register or 8 bytes of the stack to itself.
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

#define GRADWIRE_FUNCTION(name, arguments)                                                \
  GRADWIRE_EXPORT long name(GRADWIRE_PARAMETERS_##arguments) {                            \
    return hand_on(k_##name, __builtin_return_address(0) GRADWIRE_ARGUMENTS_##arguments); \
  }
GRADWIRE_NAMES(GRADWIRE_FUNCTION)
