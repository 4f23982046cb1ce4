#include "gradwire/cuda.hpp"

#include <utility>

#include "collective/stream_cuda_device.hpp"
#include "collective/stream_staged.hpp"
#include "session/device_runner.hpp"

namespace gradwire::cuda {

Session make_session(std::shared_ptr<Transport> transport, cudaStream_t stream, Policy policy, SessionOptions options) {
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "cuda::make_session: transport is null");
  }
  const int device = collective::current_cuda_device();
  policy.deterministic = true;  // dense as two_shot: the transport's own sums know no device memory
  auto messages = std::make_unique<collective::StagedMessages>(std::move(transport), device, options.timeout);
  return {std::make_unique<session::DeviceRunner>(
              std::make_shared<collective::CudaDevice>(std::move(messages), device, stream), nullptr, options),
          std::move(policy), options};
}

}  // namespace gradwire::cuda
