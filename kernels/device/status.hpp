// Counting what kernels note of a step, in the order of the stream: the host only reads, so that nothing is lost or
// counted twice while kernels run.
#ifndef GRADWIRE_KERNELS_DEVICE_STATUS_HPP
#define GRADWIRE_KERNELS_DEVICE_STATUS_HPP

#include <cstdint>

#include "kernels/device/jobs.hpp"

namespace gradwire::kernels {

/// Where kernels before this one noted NaN or Inf: *steps += 1, and the note is cleared. Both may be pinned host memory
/// that the device sees. `stream` is a cudaStream_t. Error(internal) where the launch fails.
void count_nonfinite(DeviceStatus* status, std::uint32_t* steps, void* stream);
/// As load_kernels().
void load_status_kernels();

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_STATUS_HPP
