// The functions that enqueue the kernels over windows, by the rules of kernels/device/operations.hpp. The ranks of a
// node enqueue the same ones in the same order, since their kernels wait for each other.
#ifndef GRADWIRE_KERNELS_DEVICE_WINDOW_OPERATIONS_HPP
#define GRADWIRE_KERNELS_DEVICE_WINDOW_OPERATIONS_HPP

#include <cstdint>

#include "kernels/device/jobs.hpp"
#include "kernels/device/window_job.hpp"

namespace gradwire::kernels {

/// Whether there is a kernel for calls with this codec.
[[nodiscard]] bool has_window_kernel(const FrameCodec& codec) noexcept;
/// Error(unsupported) for a codec that has none.
void all_reduce_windows(const WindowJob& job, void* stream);
/// Adds to WindowWords::tested, for all_tested_words() if every rank can write to every other one.
void check_windows(const WindowPlaces& places, void* stream);

/// The number of blocks of any of these kernels that the current device can run at once.
[[nodiscard]] std::uint32_t resident_window_blocks();
/// The same as load_kernels(), for the kernels of this header.
void load_window_kernels();

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WINDOW_OPERATIONS_HPP
