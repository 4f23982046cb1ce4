#include "plugins/nccl_preload/real.hpp"

#include <dlfcn.h>

#include <cstdio>

namespace gradwire::nccl_preload {
namespace {

/// The library that holds `caller`; it is not loaded once more. Null if the dynamic linker knows none.
void* library_of(const void* caller) noexcept {
  Dl_info where{};
  if (dladdr(caller, &where) == 0 || where.dli_fname == nullptr) {
    return nullptr;
  }
  void* library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) {
    dlclose(library);  // undoes only the reference that dlopen added
  }
  return library;
}

bool holds_nccl(void* library) noexcept { return dlsym(library, "pncclGetVersion") != nullptr; }

/// NCCL may have been loaded by a plugin that was opened with RTLD_LOCAL; then it is found through the caller's
/// library.
void* find_library(const void* caller) noexcept {
  if (holds_nccl(RTLD_DEFAULT)) {
    return RTLD_DEFAULT;
  }
  if (void* library = library_of(caller); library != nullptr && holds_nccl(library)) {
    return library;
  }
  return dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);  // as if the job had been linked with it; never closed
}

void* look_up(const char* symbol, const void* caller) noexcept {
  static void* const library = find_library(caller);  // found through the first caller, which is the job
  return dlsym(library, symbol);
}

}  // namespace

constinit thread_local int InsideNccl::depth_ = 0;

bool is_in_nccl(const char* symbol, const void* caller) noexcept { return look_up(symbol, caller) != nullptr; }

void* find_in_nccl(const char* symbol, const void* caller) noexcept {
  void* found = look_up(symbol, caller);
  if (found == nullptr) {
    std::fprintf(stderr, "gradwire: the NCCL library of this program has no %s: the call fails\n", symbol);
  }
  return found;
}

}  // namespace gradwire::nccl_preload
