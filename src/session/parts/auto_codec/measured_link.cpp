// Measures a link: exchanges between neighbours, on all ranks at once.
#include <algorithm>
#include <optional>

#include "session/parts/auto_codec/calibration.hpp"
#include "session/parts/auto_codec/rounds.hpp"

namespace gradwire::session {
namespace {

constexpr int kLatencyRounds = 9;
constexpr int kRounds = 2;  // of a larger exchange: the quickest counts, others were disturbed
constexpr std::uint64_t kFirstBytes = 16ULL << 10;
constexpr std::uint64_t kMostBytes = 8ULL << 20;
constexpr double kEnoughSeconds = 3e-3;  // for one exchange: the link is seen, and 100 ms in all are kept
constexpr double kManyLatencies = 3;     // beside which an error of the latency is small
constexpr double kTierSeconds = 50e-3;   // for exchanges, after which one that is long enough will do
constexpr double kFarSeconds =
    400e-3;                           // likewise of a far link, on which few bytes are lost in the error of the latency
constexpr double kSeen = 0.3;         // of the latency, what bytes add to it
constexpr double kLeastShare = 0.05;  // of an exchange: less cannot be told from nothing

// A link `within` one node lets no burst through that its rate would not carry: what moved least tells of it, too.
exchange::LinkCost measure_tier(Runner& runner, Probes& probes, const Neighbours& neighbours, bool within = false) {
  const auto exchange = [&](std::uint64_t bytes) {
    return probes.time_exchange(neighbours.to, neighbours.from, bytes);
  };
  const auto agreed = [&](int rounds, std::uint64_t bytes) {  // the slowest rank's part of the quickest round
    std::vector<double> seconds(static_cast<std::size_t>(rounds));
    std::generate(seconds.begin(), seconds.end(), [&] { return exchange(bytes); });
    return quickest(slowest(exchange::gather_numbers(runner.peers(), seconds, "calibration")));
  };
  const double latency = agreed(kLatencyRounds, 1);
  double rate = 0;
  double seen = 0;
  double spent = 0;
  std::optional<double> before;  // what half as many bytes added
  const auto enough = [&](double seconds) {
    const double added = seconds - latency;
    const double budget = added > kSeen * latency ? kTierSeconds : kFarSeconds;
    return seconds > kEnoughSeconds && (seconds > kManyLatencies * latency || spent > budget);
  };
  // Every rank makes the same exchanges, and stops at bytes that take so long that an error of the latency is small.
  // What took long once may have been disturbed.
  for (std::uint64_t bytes = kFirstBytes; bytes <= kMostBytes; bytes *= 2) {
    double seconds = agreed(kRounds, bytes);
    spent += kRounds * seconds;
    const bool again = enough(seconds);
    if (again) {
      seconds = std::min(seconds, agreed(kRounds, bytes));
      spent += kRounds * seconds;
    }
    const double added = std::max(seconds - latency, kLeastShare * seconds);
    seen = static_cast<double>(bytes);
    rate = within ? seen / added : exchange::link_rate(seen, before.value_or(added / 2), added);
    before = added;
    if (again && enough(seconds)) {
      break;
    }
  }
  return {latency, rate, within ? 1 : seen};
}

}  // namespace

Neighbours neighbours_inside(const exchange::Tiers& tiers, int rank) {
  const std::vector<int>& members = tiers.members(tiers.node_of(rank));
  const auto place = static_cast<std::size_t>(tiers.place_of(rank));
  return {members[(place + 1) % members.size()], members[(place + members.size() - 1) % members.size()]};
}

Neighbours neighbours_between(const exchange::Tiers& tiers, int rank) {
  const int node = tiers.node_of(rank);
  const auto place = static_cast<std::size_t>(tiers.place_of(rank));
  return {tiers.members((node + 1) % tiers.nodes())[place],
          tiers.members((node + tiers.nodes() - 1) % tiers.nodes())[place]};
}

exchange::Cluster measure_cluster(Runner& runner, Probes& probes, const exchange::Tiers& tiers) {
  const int world = runner.info().world_size;
  const int rank = runner.info().rank;
  exchange::Cluster cluster{.ranks = world, .ranks_per_node = 1};
  if (world == 1) {
    return cluster;
  }
  if (!tiers.why_not_hierarchical().empty()) {
    cluster.inter = measure_tier(runner, probes, {(rank + 1) % world, (rank + world - 1) % world}, tiers.nodes() == 1);
    return cluster;
  }
  cluster.ranks_per_node = static_cast<int>(tiers.members(0).size());
  cluster.intra = measure_tier(runner, probes, neighbours_inside(tiers, rank), true);
  cluster.inter = measure_tier(runner, probes, neighbours_between(tiers, rank));
  cluster.inter.bytes_per_second *= cluster.ranks_per_node;  // all ranks of a node sent at once
  cluster.inter.seen_bytes *= cluster.ranks_per_node;
  return cluster;
}

LinkEstimate to_estimate(const exchange::Cluster& cluster, double seconds) {
  LinkEstimate estimate;
  estimate.ranks_per_node = cluster.ranks_per_node;
  estimate.inter = {cluster.inter.latency_seconds, cluster.inter.bytes_per_second};
  estimate.intra = {cluster.intra.latency_seconds, cluster.intra.bytes_per_second};
  estimate.measured_in_seconds = seconds;
  return estimate;
}

}  // namespace gradwire::session
