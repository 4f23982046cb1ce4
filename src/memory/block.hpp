// Holds a piece of the page pool's host memory by its owner's handle.
#pragma once

#include <cstddef>

#include "memory/process_pool.hpp"

namespace gradwire::memory {

/// A block is a piece of the pool's memory and its owner's handle, through which compaction may move it. Less than
/// kPageBytes comes from the heap instead.
class Block {
 public:
  Block() = default;
  /// Takes uninitialised memory, aligned to 64 bytes, or to kPageBytes in the pool; none for 0 bytes. May throw
  /// Error(out_of_memory).
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
