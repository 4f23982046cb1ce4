#include "gradwire/cuda.hpp"

#include <utility>

#include "base/environment.hpp"
#include "base/timeout.hpp"
#include "exchange/stream/stream_cuda_device.hpp"
#include "exchange/stream/stream_cuda_port.hpp"
#include "session/device/cuda_share.hpp"
#include "session/device/device_runner.hpp"
#include "transport/relayed_messages.hpp"

namespace gradwire::cuda {

namespace {

using Path = transport::RelayedMessages::Path;

std::unique_ptr<session::Runner> runner_over(std::shared_ptr<Transport> transport, Path path, int device,
                                             cudaStream_t stream, const exchange::CudaShare& share,
                                             const SessionOptions& options) {
  const exchange::OnCudaDevice current(device);  // some thread of the caller makes a new world
  auto messages =
      std::make_unique<transport::RelayedMessages>(std::move(transport), std::make_unique<exchange::CudaPort>(device),
                                                   path, checked_timeout(options.timeout, "cuda::make_session"));
  return std::make_unique<session::DeviceRunner>(
      std::make_shared<exchange::CudaDevice>(std::move(messages), device, stream, share), nullptr, options);
}

}  // namespace

Session make_session(std::shared_ptr<Transport> transport, cudaStream_t stream, Policy policy, SessionOptions options) {
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "cuda::make_session: transport is null");
  }
  const int device = exchange::current_cuda_device();
  policy.deterministic = true;  // dense as two_shot: the transport's own sums cannot use device memory
  const bool direct = transport->capabilities().device_memory && !environment_flag("GRADWIRE_STAGED");
  auto runner = runner_over(std::move(transport), direct ? Path::direct : Path::staged, device, stream,
                            session::share_of(policy.device), options);
  return session::make_session(std::move(runner), std::move(policy), options);
}

Session make_session(std::shared_ptr<Processes> processes, cudaStream_t stream, Policy policy, SessionOptions options) {
  const int device = exchange::current_cuda_device();
  policy.deterministic = true;
  // This is always staged: a world that is over may leave receives behind, which then cannot write to device memory.
  const auto make = [=, share = session::share_of(policy.device)](std::shared_ptr<Transport> transport,
                                                                  std::uint32_t /*epoch*/) {
    return runner_over(std::move(transport), Path::staged, device, stream, share, options);
  };
  return session::make_session(std::move(processes), make, std::move(policy), options);
}

}  // namespace gradwire::cuda
