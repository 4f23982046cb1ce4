#include "choice/link_measurement.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "choice/rounds.hpp"

namespace gradwire::choice {
namespace {

constexpr int kLatencyRounds = 9;
constexpr int kRounds = 2;  // rounds of a larger exchange
constexpr std::uint64_t kFirstBytes = 16ULL << 10;
constexpr std::uint64_t kMostBytes = 8ULL << 20;
constexpr double kEnoughSeconds =
    3e-3;                               // of one exchange: enough to see the link, and all exchanges stay within 100 ms
constexpr double kManyLatencies = 3;    // beside so many latencies an error of the latency is small
constexpr double kTierSeconds = 50e-3;  // of all exchanges, after which one of kEnoughSeconds will do
constexpr double kFarSeconds = 400e-3;  // the same for a far link, where the error of the latency then hides few bytes
constexpr double kSeen = 0.3;           // share of the latency that bytes must add
constexpr double kLeastShare = 0.05;  // share of an exchange that bytes add at least: less cannot be told from nothing

// Limits of fit_link().
constexpr std::size_t kLeastSizes = 3;
constexpr double kLeastSpan = 4;  // the largest size over the smallest
constexpr double kPoor = 0.15;    // mean relative error from which a fit says nothing

double mean_error(const exchange::LinkCost& line, std::span<const TimedSize> sizes) {
  double sum = 0;
  double weights = 0;
  for (const TimedSize& one : sizes) {
    const double expected = line.latency_seconds + one.bytes / line.bytes_per_second;
    sum += one.weight * std::abs(expected / one.seconds - 1);
    weights += one.weight;
  }
  return sum / weights;
}

}  // namespace

exchange::LinkCost measure_link(const TimeExchanges& time, bool within) {
  const double latency = time(kLatencyRounds, 1);
  double rate = 0;
  double seen = 0;
  double spent = 0;
  std::optional<double> before;  // seconds that half as many bytes added
  const auto enough = [&](double seconds) {
    const double added = seconds - latency;
    const double budget = added > kSeen * latency ? kTierSeconds : kFarSeconds;
    return seconds > kEnoughSeconds && (seconds > kManyLatencies * latency || spent > budget);
  };
  // All ranks that take part make the same exchanges, and stop at a size that takes so long that an error of the
  // latency is small. A long exchange is repeated, because it may have been disturbed.
  for (std::uint64_t bytes = kFirstBytes; bytes <= kMostBytes; bytes *= 2) {
    double seconds = time(kRounds, bytes);
    spent += kRounds * seconds;
    const bool again = enough(seconds);
    if (again) {
      seconds = std::min(seconds, time(kRounds, bytes));
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

Neighbours neighbours_in_ring(int world_size, int rank) {
  return {(rank + 1) % world_size, (rank + world_size - 1) % world_size};
}

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

exchange::Cluster measure_cluster(exchange::Peers& peers, const exchange::Tiers& tiers, int rank,
                                  const TimeExchange& exchange) {
  const int world = tiers.world_size();
  exchange::Cluster cluster{.ranks = world, .ranks_per_node = 1};
  if (world == 1) {
    return cluster;
  }
  // A round takes as long as on its slowest rank.
  const auto measure = [&](const Neighbours& neighbours, bool within) {
    const auto time = [&](int rounds, std::uint64_t bytes) {
      std::vector<double> seconds(static_cast<std::size_t>(rounds));
      std::generate(seconds.begin(), seconds.end(), [&] { return exchange(neighbours, bytes); });
      return quickest(slowest(exchange::gather_numbers(peers, seconds, "calibration")));
    };
    return measure_link(time, within);
  };
  if (!tiers.why_not_hierarchical().empty()) {
    cluster.inter = measure(neighbours_in_ring(world, rank), tiers.nodes() == 1);
    return cluster;
  }
  cluster.ranks_per_node = static_cast<int>(tiers.members(0).size());
  cluster.intra = measure(neighbours_inside(tiers, rank), true);
  cluster.inter = measure(neighbours_between(tiers, rank), false);
  cluster.inter.bytes_per_second *= cluster.ranks_per_node;  // all ranks of a node sent at once
  cluster.inter.seen_bytes *= cluster.ranks_per_node;
  return cluster;
}

std::optional<exchange::LinkCost> fit_link(std::span<const TimedSize> sizes) {
  if (sizes.size() < kLeastSizes) {
    return std::nullopt;
  }
  const auto [least, most] = std::minmax_element(
      sizes.begin(), sizes.end(), [](const TimedSize& a, const TimedSize& b) { return a.bytes < b.bytes; });
  if (most->bytes < kLeastSpan * least->bytes) {
    return std::nullopt;
  }
  std::optional<exchange::LinkCost> best;
  double best_error = kPoor;
  const auto consider = [&](double latency, double rate) {
    const exchange::LinkCost line{.latency_seconds = latency, .bytes_per_second = rate};
    if (const double error = mean_error(line, sizes); error < best_error) {
      best = line;
      best_error = error;
    }
  };
  // The best line goes through two of the points, or through one and the origin.
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    consider(0, sizes[i].bytes / sizes[i].seconds);
    for (std::size_t j = 0; j < i; ++j) {
      const double rate = (sizes[i].bytes - sizes[j].bytes) / (sizes[i].seconds - sizes[j].seconds);
      const double latency = sizes[i].seconds - sizes[i].bytes / rate;
      if (std::isfinite(rate) && rate > 0 && latency >= 0) {
        consider(latency, rate);
      }
    }
  }
  return best;
}

LinkEstimate to_estimate(const exchange::Cluster& cluster, double seconds) {
  LinkEstimate estimate;
  estimate.ranks_per_node = cluster.ranks_per_node;
  estimate.inter = {cluster.inter.latency_seconds, cluster.inter.bytes_per_second};
  estimate.intra = {cluster.intra.latency_seconds, cluster.intra.bytes_per_second};
  estimate.measured_in_seconds = seconds;
  return estimate;
}

}  // namespace gradwire::choice
