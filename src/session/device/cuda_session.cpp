#include "gradwire/cuda.hpp"

#include <utility>

#include "base/environment.hpp"
#include "collective/stream/stream_cuda_device.hpp"
#include "collective/stream/stream_cuda_port.hpp"
#include "session/device/device_runner.hpp"
#include "transport/relayed_messages.hpp"

namespace gradwire::cuda {

Session make_session(std::shared_ptr<Transport> transport, cudaStream_t stream, Policy policy, SessionOptions options) {
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "cuda::make_session: transport is null");
  }
  const int device = collective::current_cuda_device();
  policy.deterministic = true;  // dense as two_shot: the transport's own sums know no device memory
  const bool direct = transport->capabilities().device_memory && !environment_flag("GRADWIRE_STAGED");
  using Path = transport::RelayedMessages::Path;
  auto messages =
      std::make_unique<transport::RelayedMessages>(std::move(transport), std::make_unique<collective::CudaPort>(device),
                                                   direct ? Path::direct : Path::staged, options.timeout);
  return session::make_session(
      std::make_unique<session::DeviceRunner>(
          std::make_shared<collective::CudaDevice>(std::move(messages), device, stream), nullptr, options),
      std::move(policy), options);
}

}  // namespace gradwire::cuda
