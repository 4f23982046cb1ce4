// Windows in the memory of this process, for ranks that are emulated, or that do not exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "kernels/device/window_job.hpp"
#include "memory/peer_windows.hpp"

namespace gradwire::test {

/// The memory of all ranks' windows.
class WindowMemory {
 public:
  WindowMemory(std::uint32_t ranks, std::uint64_t bytes) : bytes_(bytes) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      windows_.emplace_back(bytes + kAlignment);
    }
  }
  [[nodiscard]] std::byte* window(std::size_t rank) {
    void* begin = windows_[rank].data();
    std::size_t space = windows_[rank].size();
    return static_cast<std::byte*>(std::align(kAlignment, bytes_, begin, space));
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kAlignment = 256;
  std::uint64_t bytes_;
  std::vector<std::vector<std::byte>> windows_;
};

/// They as one rank sees them.
class FakeWindows final : public memory::PeerWindows {
 public:
  explicit FakeWindows(std::shared_ptr<WindowMemory> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] std::byte* window(int rank) const noexcept override {
    return memory_->window(static_cast<std::size_t>(rank));
  }
  void leak() noexcept override {}

 private:
  std::shared_ptr<WindowMemory> memory_;
};

}  // namespace gradwire::test
