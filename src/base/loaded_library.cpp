#include "base/loaded_library.hpp"

#include <dlfcn.h>
#include <link.h>

namespace gradwire {
namespace {

// How many libraries the process has ever loaded; at least 1.
unsigned long long count_loads() noexcept {
  unsigned long long loads = 1;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*bytes*/, void* count) {
        *static_cast<unsigned long long*>(count) = info->dlpi_adds;
        return 1;  // each says the same
      },
      &loads);
  return loads;
}

}  // namespace

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
