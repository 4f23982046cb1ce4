// Counts steps in which kernels noted NaN or Inf, in the order of the stream. The host only reads the count, so nothing
// is lost or counted twice while kernels run.
#ifndef GRADWIRE_KERNELS_DEVICE_STATUS_HPP
#define GRADWIRE_KERNELS_DEVICE_STATUS_HPP

#include <cstdint>

#include "kernels/device/jobs.hpp"

namespace gradwire::kernels {

/// If earlier kernels noted NaN or Inf in `notes` (CallFields::nonfinite), adds 1 to *steps and clears the notes.
/// *steps may be pinned host memory that the device sees. `stream` is a cudaStream_t. Error(internal) where the launch
/// fails.
void count_nonfinite(std::uint32_t* notes, std::uint32_t* steps, void* stream);
/// The same as load_kernels(), for the kernel of this header.
void load_status_kernels();

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_STATUS_HPP
