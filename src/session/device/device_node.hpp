// Prepares a device together with those of the other ranks: it joins the nodes of a plan, and opens windows. Neither
// belongs to a step, and both block.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "exchange/peers.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {

class DeviceNode {
 public:
  /// Without `peers`, agreements go over the device's communicator.
  DeviceNode(exchange::StreamDevice& device, std::unique_ptr<exchange::Peers> peers, std::chrono::milliseconds timeout);

  [[nodiscard]] exchange::Peers& peers() const noexcept { return *peers_; }
  /// Lets the device join the nodes of a plan that needs them. All ranks must have agreed on the plan.
  void join(const plan::Plan& plan);
  /// Opens windows where GRADWIRE_NODE_KERNEL=1 asks for them, once, and gives them to the executor. `undoes`: steps
  /// may be undone when ranks end. To be called on every rank alike.
  void open_windows(exchange::StreamExecutor& executor, bool undoes);

 private:
  exchange::StreamDevice& device_;
  std::unique_ptr<exchange::Peers> peers_;
  std::chrono::milliseconds timeout_;
  std::string nodes_ = {};  // the nodes that the device has joined, as Tiers::text()
  bool tried_ = false;
};

}  // namespace gradwire::session
