// The interface to the code that compresses calls on device memory. One file of the build defines these functions:
// device_path_cuda.cpp in a build with device code, device_path_none.cpp in one without.
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>

#include "drop_in/device_reducer.hpp"
#include "plugins/nccl_preload/child_communicator.hpp"

namespace gradwire::nccl_preload {

[[nodiscard]] bool has_device_path() noexcept;

/// What a communicator gets when it is made, so that its rank can answer the others whatever its device refuses later.
struct Reserved {
  std::shared_ptr<std::atomic<bool>> ended = {};  // NCCL must not be called any more
  std::shared_ptr<ChildCommunicator> child = {};
  std::shared_ptr<drop_in::RankGather> gather = {};
};

/// Makes the exchange of a communicator, which it does not own and does not use once `ended` is true. Throws
/// Error(out_of_memory) if neither the device nor pinned host memory has room for it. It lives and ends in a
/// CaptureTruce.
[[nodiscard]] std::shared_ptr<drop_in::RankGather> make_gather(ncclComm_t comm, int rank, int size,
                                                               std::shared_ptr<const std::atomic<bool>> ended,
                                                               std::shared_ptr<ChildCommunicator> child);

/// Makes the link to the device over the job's communicator. Throws Error with CUDA's text if the device refuses.
[[nodiscard]] std::unique_ptr<drop_in::DeviceLink> make_link(ncclComm_t comm, int rank, int size,
                                                             const Reserved& reserved);

/// While it lives, this thread may allocate and free memory although another thread captures a graph.
class CaptureTruce {
 public:
  CaptureTruce() noexcept;
  ~CaptureTruce();  // NOLINT(performance-trivially-destructible): trivial only without a device path
  CaptureTruce(const CaptureTruce&) = delete;
  CaptureTruce& operator=(const CaptureTruce&) = delete;

 private:
  [[maybe_unused]] int previous_ = 0;  // unused if there is no device path
};

}  // namespace gradwire::nccl_preload
