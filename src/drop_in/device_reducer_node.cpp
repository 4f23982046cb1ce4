// What the ranks of a communicator can do beside messages: one kernel inside a node, and sums of the library inside
// nodes with messages between them. When they are offered as ways of codec = "auto", and what becomes of the kernel
// where a rank is missing.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "drop_in/device_reducer.hpp"
#include "exchange/stream/window_opening.hpp"
#include "gradwire/error.hpp"
#include "plan/hash.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::drop_in {

using exchange::CurrentDevice;

std::string DeviceLink::host_name() const { return transport::tcp::host_identity(); }

// Every rank comes here at the same call, and each question is answered by all.
void DeviceReducer::open_offers(const DeviceReduce& reduce) {
  offers_open_ = true;
  DeviceOffers offers{.node_kernel = open_windows(reduce), .tiers = nullptr};
  if (join_nodes(reduce)) {
    offers.tiers = tiers_;
    offers.intra = configuration_.planner.policy().tiers.intra_codec;
  }
  router_->offer(std::move(offers));
}

// The communicator of our own comes first, since NCCL maps windows for it where CUDA IPC cannot.
bool DeviceReducer::open_windows(const DeviceReduce& reduce) {
  if (!all_have(configuration_.node_kernel)) {
    return false;
  }
  const CurrentDevice current(device_);
  open_own_communicator({.route = {}, .reduce = reduce});
  const std::string why = device_.open_windows([this](const std::string& mine) { return gather_texts(mine); },
                                               configuration_.timeout.value_or(std::chrono::milliseconds(0)));
  if (why.empty()) {
    executor_.use_windows(device_.windows());
    windows_ = device_.windows();
  } else if (rank_ == 0 && why != exchange::kSeveralHosts) {
    lines_.push_back("one kernel inside the node is no way of codec auto on a communicator of " +
                     std::to_string(world_) + " ranks: " + why);
  }
  return why.empty();
}

// The policy's number means what it means to a session; else ranks of one host are a node.
exchange::Tiers DeviceReducer::find_nodes() {
  const auto& asked = configuration_.planner.policy().tiers.ranks_per_node;
  if (asked && *asked > 0 && static_cast<std::uint32_t>(world_) % *asked == 0) {
    return exchange::Tiers::in_rows(*asked, world_);
  }
  const std::string host = link_->host_name();
  const std::vector<std::uint64_t> hosts = gather(plan::hash_of(host.data(), host.size(), 0));
  std::vector<std::uint32_t> nodes;
  for (const std::uint64_t one : hosts) {
    nodes.push_back(static_cast<std::uint32_t>(std::find(hosts.begin(), hosts.end(), one) - hosts.begin()));
  }
  return exchange::Tiers(nodes, world_);
}

// The library's sums need a communicator of each node, which is split from ours: the job's own has no part in them.
bool DeviceReducer::split_by_node() {
  OwnCommunicator* const own = link_->own_communicator();
  if (own == nullptr) {
    return true;
  }
  const bool all = all_have(own->split(static_cast<std::uint32_t>(tiers_->node_of(rank_)), tiers_->place_of(rank_)));
  own->settle_split(all);
  return all;
}

bool DeviceReducer::join_nodes(const DeviceReduce& reduce) {
  const auto nodes = std::make_shared<const exchange::Tiers>(find_nodes());
  const std::optional<CodecSpec>& intra = configuration_.planner.policy().tiers.intra_codec;
  if (!nodes->why_not_hierarchical().empty() ||
      (intra && *intra != CodecSpec::exact() && *intra != CodecSpec::parse("bf16"))) {
    return false;
  }
  const CurrentDevice current(device_);
  open_own_communicator({.route = {}, .reduce = reduce});
  tiers_ = nodes;
  bool joined = all_have(device_.sums_in_nodes()) && split_by_node();
  if (joined) {
    bool mine = true;
    try {
      device_.set_nodes(*nodes);
    } catch (const Error&) {  // it has no memory, which the others are told
      mine = false;
    }
    joined = all_have(mine);
  }
  if (!joined) {
    tiers_ = nullptr;
    if (rank_ == 0) {
      lines_.push_back("sums of NCCL inside nodes are no way of codec auto on a communicator of " +
                       std::to_string(world_) + " ranks in " + nodes->describe() +
                       ": some rank has no communicator of its node, for which gradwire needs a second communicator, "
                       "NCCL's ncclCommSplit and device memory");
    }
  }
  return joined;
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
