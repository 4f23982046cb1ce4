#include "session/device/device_node.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace gradwire::session {

DeviceNode::DeviceNode(exchange::StreamDevice& device, std::unique_ptr<exchange::Peers> peers,
                       std::chrono::milliseconds timeout)
    : device_(device), peers_(std::move(peers)), timeout_(timeout) {
  if (peers_ == nullptr) {
    peers_ = std::make_unique<exchange::DevicePeers>(device_, timeout_);
  }
}

void DeviceNode::join(const plan::Plan& plan) {
  const bool wanted = std::any_of(plan.buckets.begin(), plan.buckets.end(), [](const plan::Bucket& bucket) {
    return bucket.algorithm == Algorithm::hierarchical;
  });
  if (wanted && nodes_ != plan.tiers->text()) {
    device_.set_nodes(*plan.tiers);
    nodes_ = plan.tiers->text();
  }
}

void DeviceNode::open_windows(exchange::StreamExecutor& executor, bool undoes) {
  if (std::exchange(tried_, true)) {
    return;
  }
  std::string why;
  if (undoes) {  // kernels may write to the memory of a process that has ended
    why = "ranks of this session may end while others go on";
  } else if (device_.windows() == nullptr) {
    why = device_.open_windows(
        [this](const std::string& mine) { return peers_->all_gather(mine, "the opening of windows"); }, timeout_);
  }
  executor.use_windows(device_.windows());
  if (!why.empty() && device_.backend().rank() == 0) {
    log(LogLevel::warning, "GRADWIRE_NODE_KERNEL=1 has no effect, and sums are made as without it: " + why);
  }
}

}  // namespace gradwire::session
