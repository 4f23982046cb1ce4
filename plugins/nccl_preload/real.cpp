#include "plugins/nccl_preload/real.hpp"

#include <dlfcn.h>

#include <cstdio>

namespace gradwire::nccl_preload {
namespace {

/// The library that holds `caller`, which stays loaded as it is; null if the dynamic linker knows none.
void* library_of(const void* caller) noexcept {
  Dl_info where{};
  if (dladdr(caller, &where) == 0 || where.dli_fname == nullptr) {
    return nullptr;
  }
  void* library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) {
    dlclose(library);  // only the count that dlopen raised
  }
  return library;
}

bool holds_nccl(void* library) noexcept { return dlsym(library, "pncclGetVersion") != nullptr; }

/// NCCL may have come with a plugin that was opened for itself only; the caller's own library then leads to it.
void* find_library(const void* caller) noexcept {
  if (holds_nccl(RTLD_DEFAULT)) {
    return RTLD_DEFAULT;
  }
  if (void* library = library_of(caller); library != nullptr && holds_nccl(library)) {
    return library;
  }
  return dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);  // as if the job had been linked with it; never closed
}

}  // namespace

constinit thread_local int InsideNccl::depth_ = 0;

void* find_in_nccl(const char* symbol, const void* caller) noexcept {
  static void* const library = find_library(caller);  // the first caller knows it; this drop-in may ask later
  void* found = dlsym(library, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "gradwire: the NCCL library of this program has no %s: the call fails\n", symbol);
  }
  return found;
}

}  // namespace gradwire::nccl_preload
