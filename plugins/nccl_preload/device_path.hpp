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

/// Makes the link to the device over the job's communicator, which it does not own and does not use once `ended` is
/// true, and its `child`. Throws Error with CUDA's text if the device refuses.
[[nodiscard]] std::unique_ptr<drop_in::DeviceLink> make_link(ncclComm_t comm, int rank, int size,
                                                             std::shared_ptr<const std::atomic<bool>> ended,
                                                             std::shared_ptr<ChildCommunicator> child);

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
