// Pinned host memory for staging: reused, counted, and not freed before the end, since pinning takes long and must not
// happen during capture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire::memory {

class PinnedPool {
 public:
  explicit PinnedPool(int device) : device_(device) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  /// At its end no copy to or from its memory may be under way.
  ~PinnedPool();

  /// Page-aligned. Error(out_of_memory) names the size, with CUDA's text.
  [[nodiscard]] std::byte* acquire(std::size_t bytes);
  /// Returns memory, after copies to and from it have ended. Null is allowed.
  void release(std::byte* memory) noexcept;
  /// Leaks memory, which is never used again, since something may still write to it.
  void leak(std::byte* memory) noexcept;
  /// Bytes pinned, in use or not.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct Buffer {
    std::byte* data;
    std::size_t bytes;
    bool in_use;
  };
  int device_;
  std::vector<Buffer> buffers_;
  std::uint64_t bytes_ = 0;
};

}  // namespace gradwire::memory
