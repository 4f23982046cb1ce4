// Windows of ranks whose devices can write to each other: addresses as they are between ranks of one process, and
// CUDA IPC between processes of one host.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "memory/peer_windows.hpp"

namespace gradwire::memory {

/// The place of a rank's device, which the other ranks must know before they open windows.
struct DevicePlace {
  std::string host;    // equal for processes that see the same devices
  std::string device;  // equal for ranks that share a device
  [[nodiscard]] std::string text() const { return host + "/" + device; }
};
/// Returns the place of a device of this process. Throws errors of CUDA.
[[nodiscard]] DevicePlace device_place(int device);

class CudaPeerWindows final : public PeerWindows {
 public:
  /// Opens windows of `bytes` zeroed bytes. Every rank of a host calls it at the same time, with the device current.
  /// Returns null where some rank cannot access all windows; `why` then names a rank and says why.
  [[nodiscard]] static std::unique_ptr<CudaPeerWindows> open(int device, std::size_t bytes, int rank,
                                                             const AllGather& all_gather, std::string& why);
  ~CudaPeerWindows() override;

  [[nodiscard]] int world_size() const noexcept override { return static_cast<int>(windows_.size()); }
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

  CudaPeerWindows(int device, int rank, int world_size);
  void allocate(std::size_t bytes);
  [[nodiscard]] Offer offer() const;
  void open_window(int rank, const Offer& offer);

  int device_;
  int rank_;
  std::vector<Window> windows_;
  bool leaks_ = false;
};

}  // namespace gradwire::memory
