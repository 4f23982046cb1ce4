#include <utility>

#include "base/forked.hpp"
#include "base/timeout.hpp"
#include "exchange/calls/device_communicator.hpp"
#include "exchange/peers.hpp"
#include "exchange/stream/stream_nccl.hpp"
#include "gradwire/nccl.hpp"
#include "session/device/cuda_share.hpp"
#include "session/device/device_runner.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::nccl {
Session make_session(ncclComm_t comm, cudaStream_t stream, Policy policy, SessionOptions options) {
  std::shared_ptr<exchange::StreamDevice> device =
      exchange::make_nccl_device(comm, stream, session::share_of(policy.device));
  exchange::DevicePeers peers(*device, checked_timeout(options.timeout, "nccl::make_session"));
  std::vector<std::uint32_t> nodes = exchange::nodes_by_host(peers, transport::tcp::host_identity());
  return session::make_session(
      std::make_unique<session::DeviceRunner>(std::move(device), nullptr, options, std::move(nodes)), std::move(policy),
      options);
}

struct Communicator::State {
  exchange::DeviceCommunicator communicator;
  Home home = {};
};

Communicator::Communicator(ncclComm_t comm, cudaStream_t stream, CommunicatorOptions options)
    : state_(new State{exchange::DeviceCommunicator(exchange::make_nccl_device(comm, stream), options)}) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  leave_in_child(state_);
  state_ = std::move(other.state_);
  return *this;
}
Communicator::~Communicator() { leave_in_child(state_); }

int Communicator::rank() const noexcept { return state_->communicator.rank(); }
int Communicator::world_size() const noexcept { return state_->communicator.world_size(); }

Statistics Communicator::all_reduce(ConstView input, View output, const CallOptions& options) {
  return state_->communicator.all_reduce(input, output, options);
}

void Communicator::reserve(std::uint64_t count, DType dtype, const CallOptions& options) {
  state_->communicator.reserve(count, dtype, options);
}

void Communicator::wait() { state_->communicator.wait(); }

}  // namespace gradwire::nccl
