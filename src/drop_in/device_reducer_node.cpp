// One kernel inside a node as a way of codec = "auto": when it is offered, and what becomes of it where a rank is
// missing.
#include "drop_in/device_reducer.hpp"
#include "exchange/stream/window_opening.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {

using exchange::CurrentDevice;

// The communicator of our own comes first, since NCCL maps windows for it where CUDA IPC cannot.
void DeviceReducer::open_node_kernel(const DeviceReduce& reduce) {
  node_kernel_tried_ = true;
  if (!all_have(configuration_.node_kernel)) {
    return;
  }
  const CurrentDevice current(device_);
  open_own_communicator({.route = {}, .reduce = reduce});
  const std::string why = device_.open_windows([this](const std::string& mine) { return gather_texts(mine); },
                                               configuration_.timeout.value_or(std::chrono::milliseconds(0)));
  if (why.empty()) {
    executor_.use_windows(device_.windows());
    windows_ = device_.windows();
    router_->offer_node_kernel();
  } else if (rank_ == 0 && why != exchange::kSeveralHosts) {
    lines_.push_back("one kernel inside the node is no way of codec auto on a communicator of " +
                     std::to_string(world_) + " ranks: " + why);
  }
}

void DeviceReducer::check_node_kernel() const {
  if (const exchange::WindowCalls* windows = windows_; windows != nullptr) {
    windows->check();
  }
}

std::string DeviceReducer::missing() const noexcept {
  try {
    check_node_kernel();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void DeviceReducer::abort() noexcept {
  try {
    device_.abort(Error(ErrorCode::aborted, "the job ended the communicator"));
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the text
  }
}

}  // namespace gradwire::drop_in
