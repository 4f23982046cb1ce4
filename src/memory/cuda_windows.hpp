// Windows of ranks whose devices can write to each other: addresses as they are between ranks of one process, and
// CUDA IPC between processes of one host.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "memory/peer_windows.hpp"

namespace gradwire::memory {

/// Returns the PCI bus id of a device of this process, which is the same for all processes of a host. Throws errors of
/// CUDA.
[[nodiscard]] std::string device_bus(int device);

/// Returns a text that no other process has, without a space.
[[nodiscard]] std::string process_text();
/// Zeroes new memory of the current device, and waits for that alone: other work may wait for another rank.
void clear_window(void* data, std::size_t bytes);

class CudaPeerWindows final : public PeerWindows {
 public:
  /// Opens windows of `bytes` zeroed bytes. Every rank of a host calls it at the same time, with the device current.
  /// Returns null where some rank cannot access all windows; `why` then names a rank and says why. `unused`, if not
  /// null, gets the memory of such windows: to free it may wait for all work of the device, and so for other ranks.
  [[nodiscard]] static std::unique_ptr<CudaPeerWindows> open(int device, std::size_t bytes, int rank,
                                                             const AllGather& all_gather, std::string& why,
                                                             std::unique_ptr<PeerWindows>* unused = nullptr);
  ~CudaPeerWindows() override;

  [[nodiscard]] std::byte* window(int rank) const noexcept override {
    return windows_[static_cast<std::size_t>(rank)].data;
  }
  void leak() noexcept override { leaks_ = true; }

 private:
  struct Window {
    std::byte* data = nullptr;
    bool opened = false;  // by CUDA IPC
  };
  // What a rank tells the others of its window.
  struct Offer {
    long process = 0;
    std::uint64_t key = 0;  // of the process; in another container another one may have the same number
    int device = -1;
    void* data = nullptr;
    cudaIpcMemHandle_t handle{};
  };

  CudaPeerWindows(int device, int rank);
  void allocate(std::size_t bytes);
  [[nodiscard]] Offer offer() const;
  void open_window(int rank, const Offer& offer);

  int device_;
  int rank_;
  std::vector<Window> windows_;
  bool leaks_ = false;
};

}  // namespace gradwire::memory
