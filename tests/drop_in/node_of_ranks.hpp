// Ranks of one node under the drop-in for NCCL: devices of host memory with windows, in which the emulator runs the
// kernel, and scripted times.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device/window_operations.hpp"
#include "tests/drop_in/device_auto_rank.hpp"

namespace gradwire::drop_in {

inline constexpr int kNodeRanks = 3;

// The devices of a node have these: windows, and kernels that the emulator runs where they come to their turn.
inline test::HostWindows new_node(int ranks = kNodeRanks) {
  const auto world = static_cast<std::uint32_t>(ranks);
  const kernels::WindowShape largest{
      .ranks = world, .rank = 0, .blocks = kernels::kMostWindowBlocks, .slot_bytes = exchange::kWindowSlotBytes};
  test::HostWindows node;
  node.memory = std::make_shared<test::WindowMemory>(world, kernels::window_bytes(largest));
  node.all_reduce = [](const kernels::WindowJob& job) { kernels::all_reduce_windows(job, nullptr); };
  node.check = [](const kernels::WindowPlaces& places) { kernels::check_windows(places, nullptr); };
  return node;
}

/// Seconds of a call.
struct Times {
  double by_messages = 1e-3;
  double by_node_kernel = 1e-3;
};

/// Runs ranks of one node, each with windows that `change` may have changed for it.
struct NodeOfRanks {
  Configuration configuration = automatic("[\"int8\"]");
  Times times = {};
  int ranks = kNodeRanks;
  std::function<void(test::HostWindows& windows, int rank)> change = [](test::HostWindows&, int) {};

  void run(const std::function<void(AutoRank& rank)>& body) const {
    const test::HostWindows node = new_node(ranks);
    test::run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      test::HostWindows mine = node;
      change(mine, transport->rank());
      AutoRank rank(configuration, transport, mine);
      rank.clock().compressed = times.by_messages;
      rank.clock().node_kernel = times.by_node_kernel;
      body(rank);
    });
  }
};

// Compressed calls by an algorithm, on this rank.
inline std::uint64_t calls_by(const Ledger& ledger, const std::string& algorithm) {
  std::uint64_t calls = 0;
  for (const auto& [what, totals] : ledger.classes()) {
    calls += totals.algorithm == algorithm ? totals.compressed_calls : 0;
  }
  return calls;
}

// The result of the same call under a named codec, by messages.
inline std::vector<std::vector<float>> by_messages(const std::string& codec) {
  std::vector<std::vector<float>> results(kNodeRanks);
  const Configuration named = configuration_of("[defaults]\ncodec = \"" + codec + "\"\n");
  test::run_ranks(kNodeRanks, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(named, transport);
    EXPECT_EQ(rank.call(0), "compressed");
    results[static_cast<std::size_t>(transport->rank())] = rank.large[0];
  });
  return results;
}

}  // namespace gradwire::drop_in
