// Opens windows that NCCL maps for all ranks of a communicator (its symmetric windows, NCCL 2.27), where CUDA IPC
// cannot: between containers, for example. The host can ask for their addresses from NCCL 2.29.2 on, so NCCL's
// functions are looked up when the process runs; gradwire is built with older headers as well.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "memory/peer_windows.hpp"

namespace gradwire::memory {

/// NCCL's functions for such windows, by their names there. Communicators and windows are ncclComm_t and ncclWindow_t;
/// results are ncclResult_t, of which 0 is success.
struct NcclWindowFunctions {
  int (*mem_alloc)(void** data, std::size_t bytes) = nullptr;
  int (*mem_free)(void* data) = nullptr;
  int (*comm_window_register)(void* comm, void* data, std::size_t bytes, void** window, int flags) = nullptr;
  int (*comm_window_deregister)(void* comm, void* window) = nullptr;
  int (*get_peer_device_pointer)(void* window, std::size_t offset, int peer, void** address) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;

  /// Looks the functions up in the libraries of this process. Returns the name of one that is missing; empty if none
  /// is.
  [[nodiscard]] std::string find();
};

class NcclPeerWindows final : public PeerWindows {
 public:
  /// Opens windows of `bytes` zeroed bytes. Every rank of the communicator calls it at the same time, with its device
  /// current. Returns null where some rank cannot access all windows; `why` then names a rank and says why. The
  /// communicator, an ncclComm_t, must outlive the windows. `functions`: null looks NCCL's up.
  [[nodiscard]] static std::unique_ptr<NcclPeerWindows> open(void* communicator, std::size_t bytes, int rank,
                                                             const AllGather& all_gather, std::string& why,
                                                             const NcclWindowFunctions* functions = nullptr);
  ~NcclPeerWindows() override;

  [[nodiscard]] std::byte* window(int rank) const noexcept override { return windows_[static_cast<std::size_t>(rank)]; }
  void leak() noexcept override { leaks_ = true; }

 private:
  NcclPeerWindows(void* communicator, const NcclWindowFunctions& functions)
      : communicator_(communicator), functions_(functions) {}
  void check(int result, const char* call) const;
  void allocate(std::size_t bytes);
  void add(std::size_t bytes);
  void find_windows(int rank, int world_size);

  void* communicator_;
  NcclWindowFunctions functions_;
  void* data_ = nullptr;
  void* handle_ = nullptr;
  std::vector<std::byte*> windows_;
  bool leaks_ = false;
};

}  // namespace gradwire::memory
