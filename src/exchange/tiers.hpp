// Which ranks share a node, and so which links are inside a node and which are between nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/statistics.hpp"

namespace gradwire::exchange {

class Tiers {
 public:
  /// A world of one rank.
  Tiers() : Tiers({}, 1) {}
  /// `nodes`: the node of each rank as a number (Transport::nodes); empty: all ranks are on one.
  /// Error(invalid_argument) unless there is one number for each rank.
  Tiers(std::span<const std::uint32_t> nodes, int world_size);
  /// Tiers where `ranks_per_node` consecutive ranks share a node. Error(invalid_argument) unless the number divides the
  /// world; a world of one rank is one node.
  [[nodiscard]] static Tiers in_rows(std::uint32_t ranks_per_node, int world_size);

  [[nodiscard]] int world_size() const noexcept { return static_cast<int>(node_of_.size()); }
  /// Nodes are numbered in the order of their lowest ranks.
  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  /// Place of a rank among those of its node.
  [[nodiscard]] int place_of(int rank) const { return place_of_[static_cast<std::size_t>(rank)]; }
  /// The ranks of a node, ascending.
  [[nodiscard]] const std::vector<int>& members(int node) const { return members_[static_cast<std::size_t>(node)]; }

  static constexpr int kAllPeers = -1;
  /// Counts bytes that `rank` has sent to `peer`, as inside its node or between nodes. Bytes to all peers are those of
  /// the transport's own sum, which counts as a ring over all ranks.
  void count_sent(Statistics& statistics, std::uint64_t bytes, int rank, int peer) const;

  /// The reason why the hierarchical collective is of no use here: one node, one rank a node, or nodes of different
  /// sizes. Empty where it is of use.
  [[nodiscard]] std::string why_not_hierarchical() const;
  /// "2 nodes of 2 ranks", "nodes of 2, 2 and 1 ranks".
  [[nodiscard]] std::string describe() const;
  /// The node of each rank: "0 0 1 1". Equal texts mean equal tiers.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] bool even() const;

  std::vector<int> node_of_;
  std::vector<int> place_of_;
  std::vector<std::vector<int>> members_;
};

}  // namespace gradwire::exchange
