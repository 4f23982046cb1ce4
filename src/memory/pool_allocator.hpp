// An allocator of the standard library's containers over the page pool, for payloads that grow piece by piece. Their
// memory stays where it is: compaction moves blocks of PagedVector alone.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/process_pool.hpp"

namespace gradwire::memory {

/// Takes what has kPageBytes or more from the pool, where it may throw Error(out_of_memory), and all else from the
/// heap, where it may throw std::bad_alloc.
template <typename T, MemoryUse kUse>
struct PoolAllocator {
  using value_type = T;
  template <typename Other>
  struct rebind {
    using other = PoolAllocator<Other, kUse>;
  };

  PoolAllocator() = default;
  template <typename Other>
  PoolAllocator(const PoolAllocator<Other, kUse>& /*other*/) noexcept {}  // NOLINT: allocators convert

  [[nodiscard]] T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kPageBytes) {
      return static_cast<T*>(::operator new(bytes));
    }
    return reinterpret_cast<T*>(page_pool().allocate(bytes, kUse));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kPageBytes) {
      ::operator delete(memory);
    } else {
      page_pool().free(reinterpret_cast<std::byte*>(memory), bytes, kUse);
    }
  }
  [[nodiscard]] friend bool operator==(const PoolAllocator& /*a*/, const PoolAllocator& /*b*/) noexcept { return true; }
};

template <typename T, MemoryUse kUse>
using PooledVector = std::vector<T, PoolAllocator<T, kUse>>;

}  // namespace gradwire::memory
