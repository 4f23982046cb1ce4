// Takes frame buffers from the page pool, counted by their owner. One thread at a time may use it; buffers must not
// outlive their counter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "memory/block.hpp"

namespace gradwire::memory {

class BufferPool {
 public:
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : pool_(other.pool_), block_(std::move(other.block_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { release(); }

    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {block_.data(), bytes_}; }
    [[nodiscard]] bool empty() const noexcept { return block_.empty(); }
    /// Returns the buffer to the pool.
    void release() noexcept;
    /// Leaks the buffer, which is never used again, since something may still write to it.
    void leak() noexcept {
      block_.leak();
      bytes_ = 0;
    }

   private:
    friend class BufferPool;
    BufferPool* pool_ = nullptr;
    Block block_;
    std::size_t bytes_ = 0;
  };

  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Returns uninitialised memory, aligned to kPageBytes. Error(out_of_memory) names the size.
  [[nodiscard]] Buffer acquire(std::size_t bytes);

  /// Return the bytes that are acquired now, leaked ones included, and the most that ever were.
  [[nodiscard]] std::uint64_t bytes_in_use() const noexcept { return in_use_; }
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept { return peak_; }

 private:
  std::uint64_t in_use_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace gradwire::memory
