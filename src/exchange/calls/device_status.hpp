// Throws Errors for what kernels noted, and for memory that they cannot use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "exchange/stream/stream_device.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::exchange {

/// Error(corrupt) where a frame was not as expected. Kernels may write meanwhile. After an abort of the messages
/// kernels decode arbitrary bytes, so the Error is then that of the messages.
inline void check_device_status(StreamDevice& device) {
  const auto read = [](std::uint32_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); };
  kernels::DeviceStatus& status = device.status();
  if (const std::uint32_t bad = read(status.bad_frames); bad > 0) {
    device.poll();
    const std::uint32_t first = read(status.first_bad);
    throw Error(ErrorCode::corrupt,
                std::to_string(bad) + " frame(s) arrived damaged on rank " + std::to_string(device.backend().rank()) +
                    (first > 0 ? ", one of them from rank " + std::to_string(first - 1) : "") +
                    "; they were decoded to NaN, before this call. Check the network and the memory");
  }
}

/// Error(invalid_argument) unless `data` is memory of this device that kernels can read as `dtype`; `what` names it.
inline void check_view(StreamDevice& device, const void* data, DType dtype, const std::string& what) {
  device.check(data, what);
  const std::size_t bytes = element_bytes(dtype);
  if (reinterpret_cast<std::uintptr_t>(data) % bytes != 0) {
    throw Error(ErrorCode::invalid_argument, what + " is not aligned to the " + std::to_string(bytes) + " bytes of " +
                                                 std::string(to_string(dtype)) +
                                                 ", as a device needs it; give memory that is");
  }
}

}  // namespace gradwire::exchange
