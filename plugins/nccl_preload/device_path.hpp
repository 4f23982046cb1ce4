// Where calls on device memory are compressed. One file of the build defines these: device_path_cuda.cpp with the
// device code, device_path_none.cpp without.
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>

#include "drop_in/device_member.hpp"

namespace gradwire::nccl_preload {

[[nodiscard]] bool has_device_path() noexcept;

/// The job's communicator as a device. Not owned: `ended` says that it is going, or gone, and must not be asked any
/// more. Error with CUDA's text where the device refuses.
[[nodiscard]] std::unique_ptr<drop_in::DeviceLink> make_link(ncclComm_t comm, int rank, int size,
                                                             std::shared_ptr<const std::atomic<bool>> ended);

/// A time in which this thread may ask for memory while another one captures a graph.
class CaptureTruce {
 public:
  CaptureTruce() noexcept;
  ~CaptureTruce();  // NOLINT(performance-trivially-destructible): only where there is no device path
  CaptureTruce(const CaptureTruce&) = delete;
  CaptureTruce& operator=(const CaptureTruce&) = delete;

 private:
  [[maybe_unused]] int previous_ = 0;  // unused where there is no device path
};

}  // namespace gradwire::nccl_preload
