// Frame buffers: aligned, reused, counted. One thread at a time; buffers must not outlive their pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gradwire::memory {

class BufferPool {
 public:
  /// Alignment of every buffer, in bytes.
  static constexpr std::size_t kAlignment = 64;

  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { release(); }

    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, bytes_}; }
    [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
    /// Returns the buffer to the pool.
    void release() noexcept;
    /// Leaks the buffer, which is never used again, since something may still write to it.
    void leak() noexcept;

   private:
    friend class BufferPool;
    BufferPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t capacity_ = 0;
  };

  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  /// Uninitialised memory. Error(out_of_memory) names the size.
  [[nodiscard]] Buffer acquire(std::size_t bytes);

  /// Bytes that are acquired now, and the most that were ever held (acquired or kept for reuse).
  [[nodiscard]] std::uint64_t bytes_in_use() const noexcept { return in_use_; }
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept { return peak_; }

 private:
  struct Free {
    std::byte* data;
    std::size_t capacity;
  };
  void give_back(std::byte* data, std::size_t capacity) noexcept;

  std::vector<Free> free_;
  std::uint64_t in_use_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace gradwire::memory
