// Marks memory that nobody may touch, for AddressSanitizer; other builds do nothing.
#pragma once

#include <cstddef>

#include "base/sanitizers.hpp"

#if GRADWIRE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace gradwire::memory {

inline void poison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if GRADWIRE_ADDRESS_SANITIZER
  __asan_poison_memory_region(memory, bytes);
#endif
}

inline void unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if GRADWIRE_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

}  // namespace gradwire::memory
