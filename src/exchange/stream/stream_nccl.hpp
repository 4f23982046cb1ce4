// Makes a device whose messages are NCCL's, from the caller's communicator and stream.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "exchange/stream/stream_cuda_device.hpp"
#include "transport/nccl_messages.hpp"

namespace gradwire::exchange {

/// Makes a device whose messages are connected to every peer when this returns. Every rank calls it. `stream` stays the
/// caller's and must outlive the device. Throws the errors of CudaDevice.
[[nodiscard]] inline std::unique_ptr<CudaDevice> make_nccl_device(std::unique_ptr<transport::NcclMessages> messages,
                                                                  cudaStream_t stream, const CudaShare& share) {
  transport::NcclMessages& nccl = *messages;
  auto device = std::make_unique<CudaDevice>(std::move(messages), nccl.device(), stream, share);
  const CurrentDevice current(*device);
  const std::size_t bytes = std::max(std::size_t{4} << 20, static_cast<std::size_t>(nccl.world_size()) + 1);
  device->communicate_with(
      bytes, [&](std::span<std::byte> scratch, cudaStream_t own_stream) { nccl.connect(scratch, own_stream); });
  return device;
}

/// The same, over a communicator of its own that is made from the caller's (NcclMessages::over), which must outlive the
/// device.
[[nodiscard]] inline std::unique_ptr<CudaDevice> make_nccl_device(ncclComm_t comm, cudaStream_t stream,
                                                                  const CudaShare& share = {}) {
  (void)cuda_devices();  // its error names a missing driver, which NCCL's own error does not
  return make_nccl_device(transport::NcclMessages::over(comm), stream, share);
}

}  // namespace gradwire::exchange
