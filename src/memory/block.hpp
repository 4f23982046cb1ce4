// A piece of host memory of the page pool, by its owner's handle.
#pragma once

#include <cstddef>

#include "memory/process_pool.hpp"

namespace gradwire::memory {

/// A piece of memory of the pool and its owner's handle, through which compaction may move it. Less than kPageBytes
/// comes from the heap instead.
class Block {
 public:
  Block() = default;
  /// Uninitialised memory, aligned to 64 bytes, or to kPageBytes in the pool. 0 bytes: none. Error(out_of_memory).
  Block(std::size_t bytes, MemoryUse use, PagePool& pool = page_pool());
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block() { release(); }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
  [[nodiscard]] bool in_pool() const noexcept { return pool_ != nullptr; }
  [[nodiscard]] MemoryUse use() const noexcept { return use_; }
  void release() noexcept;
  /// Leaves the memory in use for ever, since something may still write to it.
  void leak() noexcept;

 private:
  friend class PagePool;
  PagePool* pool_ = nullptr;  // null: of the heap
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryUse use_ = MemoryUse::frames;
};

}  // namespace gradwire::memory
