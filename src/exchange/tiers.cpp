#include "exchange/tiers.hpp"

#include <algorithm>
#include <map>

#include "gradwire/error.hpp"

namespace gradwire::exchange {
namespace {

std::string ranks_text(std::size_t ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

}  // namespace

Tiers::Tiers(std::span<const std::uint32_t> nodes, int world_size) {
  const auto world = static_cast<std::size_t>(world_size);
  if (!nodes.empty() && nodes.size() != world) {
    throw Error(ErrorCode::invalid_argument, "the transport names the nodes of " + ranks_text(nodes.size()) +
                                                 ", the world has " + ranks_text(world) +
                                                 "; it must name one for each rank, or none");
  }
  std::map<std::uint32_t, int> numbers;
  for (std::size_t rank = 0; rank < world; ++rank) {
    const auto [found, is_new] = numbers.try_emplace(nodes.empty() ? 0 : nodes[rank], this->nodes());
    if (is_new) {
      members_.emplace_back();
    }
    std::vector<int>& members = members_[static_cast<std::size_t>(found->second)];
    node_of_.push_back(found->second);
    place_of_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(rank));
  }
}

Tiers Tiers::in_rows(std::uint32_t ranks_per_node, int world_size) {
  const auto world = static_cast<std::uint32_t>(world_size);
  if (world == 1) {
    return {};
  }
  if (ranks_per_node == 0 || world % ranks_per_node != 0) {
    throw Error(ErrorCode::invalid_argument, "ranks_per_node is " + std::to_string(ranks_per_node) +
                                                 ", which does not divide the " + ranks_text(world) +
                                                 " of this job; write a number that does, or leave it out");
  }
  std::vector<std::uint32_t> nodes(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    nodes[rank] = rank / ranks_per_node;
  }
  return {nodes, world_size};
}

void Tiers::count_sent(Statistics& statistics, std::uint64_t bytes, int rank, int peer) const {
  std::uint64_t leaves = 0;
  if (peer >= 0) {
    leaves = node_of(peer) != node_of(rank) ? bytes : 0;
  } else if (nodes() > 1) {
    leaves = bytes * static_cast<std::uint64_t>(nodes()) / static_cast<std::uint64_t>(world_size());
  }
  statistics.bytes_sent += bytes;
  statistics.bytes_inter += leaves;
  statistics.bytes_intra += bytes - leaves;
}

bool Tiers::even() const {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const std::vector<int>& node) { return node.size() == members_[0].size(); });
}

std::string Tiers::why_not_hierarchical() const {
  if (nodes() == 1) {
    return "all ranks are on one node";
  }
  if (nodes() == world_size()) {
    return "each node has one rank";
  }
  return even() ? "" : "nodes differ in size: " + describe();
}

std::string Tiers::describe() const {
  constexpr std::size_t kMost = 8;  // most sizes in the list
  if (even()) {
    return std::to_string(nodes()) + (nodes() == 1 ? " node of " : " nodes of ") + ranks_text(members_[0].size());
  }
  std::string sizes;
  for (std::size_t node = 0; node < members_.size() && node < kMost; ++node) {
    const bool last = node + 1 == members_.size();
    sizes += (node == 0 ? "" : last ? " and " : ", ") + std::to_string(members_[node].size());
  }
  return "nodes of " + sizes + (members_.size() > kMost ? ", ..." : "") + " ranks";
}

std::string Tiers::text() const {
  std::string text;
  for (const int node : node_of_) {
    text += (text.empty() ? "" : " ") + std::to_string(node);
  }
  return text;
}

}  // namespace gradwire::exchange
