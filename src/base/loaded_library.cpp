#include "base/loaded_library.hpp"

#include <dlfcn.h>

#include "base/loaded_objects.hpp"

namespace gradwire {

void* LoadedLibrary::handle() noexcept {
  void* known = handle_.load(std::memory_order_relaxed);
  if (known != nullptr) {
    return known;
  }
  const unsigned long long loads = count_loads();
  if (loads != loads_.load(std::memory_order_relaxed)) {
    known = dlopen(name_, RTLD_LAZY | RTLD_NOLOAD);
    handle_.store(known, std::memory_order_relaxed);
    loads_.store(loads, std::memory_order_relaxed);
  }
  return known;
}

}  // namespace gradwire
