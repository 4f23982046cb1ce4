// One kernel inside a node as a way of compressed calls: when it is offered, which calls under a named codec take it,
// and what becomes of it where a rank is missing.
#include "drop_in/device_reducer.hpp"
#include "exchange/stream/window_calls.hpp"
#include "exchange/stream/window_opening.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {

namespace {

NodeKernelChoice::Kind kind_in_node(const Router::Route& route, const DeviceReduce& reduce) {
  return {.call = {route.what.function, reduce.dtype, reduce.count},
          .codec = route.stage.codec.to_string() + " " + route.stage.second_hop.to_string()};
}

}  // namespace

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
    if (trials_) {
      router_->offer_node_kernel();
    } else {
      node_kernel_.emplace(link_->clock());
    }
  } else if (rank_ == 0 && why != exchange::kSeveralHosts && (trials_ || configuration_.node_kernel_asked)) {
    lines_.push_back("one kernel inside the node is no way of calls on a communicator of " + std::to_string(world_) +
                     " ranks: " + why);
  }
}

// The kernel has no factors, and calls of a group may share their messages, which was not timed against it.
bool DeviceReducer::fits_node_kernel(const Router::Route& route, const DeviceReduce& reduce) const {
  const policy::Stage& stage = route.stage;
  return !trials_ && route.what.function == Function::nccl_all_reduce && !reduce.scaled && !reduce.grouped &&
         (route.algorithm == Algorithm::two_shot || route.algorithm == Algorithm::automatic) &&
         exchange::has_window_kernel({stage.codec, reduce.dtype}, {stage.second_hop, reduce.dtype});
}

void DeviceReducer::choose_node_kernel(Router::Route& route, const DeviceReduce& reduce) {
  if (!fits_node_kernel(route, reduce)) {
    return;
  }
  if (!node_kernel_tried_) {
    open_node_kernel(reduce);
  }
  if (node_kernel_) {
    const choice::EqualWays::Turn turn = node_kernel_->next(kind_in_node(route, reduce));
    route.node_kernel = turn.second;
    route.timed = turn.timed;
  }
}

bool DeviceReducer::takes_node_kernel(const Router::Route& route, const DeviceReduce& reduce) const {
  return node_kernel_ && fits_node_kernel(route, reduce) && node_kernel_->takes(kind_in_node(route, reduce));
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
