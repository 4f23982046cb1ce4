// Makes a device whose messages are NCCL's, from the caller's communicator and stream.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "exchange/stream/stream_cuda_device.hpp"
#include "transport/nccl_messages.hpp"

namespace gradwire::exchange {

/// Messages go over a communicator of their own (NcclMessages::over), which is connected to every peer when this
/// returns. Every rank calls it; `comm` and `stream` stay the caller's and must outlive the device. It throws the
/// errors of NcclMessages::over and of CudaDevice.
[[nodiscard]] inline std::unique_ptr<CudaDevice> make_nccl_device(ncclComm_t comm, cudaStream_t stream,
                                                                  const CudaShare& share = {}) {
  (void)cuda_devices();  // its error names a missing driver, which NCCL's own error does not
  auto messages = transport::NcclMessages::over(comm);
  transport::NcclMessages& nccl = *messages;
  auto device = std::make_unique<CudaDevice>(std::move(messages), nccl.device(), stream, share);
  const CurrentDevice current(*device);
  using Queue = StreamBackend::Queue;
  StreamBackend& backend = device->backend();
  const std::size_t bytes = std::max(std::size_t{4} << 20, static_cast<std::size_t>(nccl.world_size()) + 1);
  std::byte* scratch = backend.acquire(bytes);
  backend.wait(Queue::communication, backend.record(Queue::compute));
  nccl.connect({scratch, bytes}, device->stream(Queue::communication));
  backend.wait(Queue::compute, backend.record(Queue::communication));
  backend.release(scratch);
  return device;
}

}  // namespace gradwire::exchange
