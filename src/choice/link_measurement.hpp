// Measures a link by exchanges that grow until they take long enough for an error of the latency to be small. Sessions
// measure between neighbours on all ranks at once, `gradwire doctor` between two ranks while all others sleep. Drop-ins
// that only observe use the job's own calls as exchanges.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "exchange/model/cost_model.hpp"
#include "exchange/peers.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/statistics.hpp"

namespace gradwire::choice {

/// Makes `rounds` exchanges of `bytes` and returns the seconds of the quickest, since the others were disturbed. All
/// ranks that take part must get the same number, because it decides what they do next.
using TimeExchanges = std::function<double(int rounds, std::uint64_t bytes)>;

/// Returns the latency of such exchanges, and the rate at which bytes add to it. A link `within` one node lets no burst
/// through above its rate, so the rate holds for the smallest messages, too.
[[nodiscard]] exchange::LinkCost measure_link(const TimeExchanges& time, bool within = false);

/// The ranks that one rank exchanges with in a measurement.
struct Neighbours {
  int to;
  int from;
};
/// Returns the neighbours in rank order.
[[nodiscard]] Neighbours neighbours_in_ring(int world_size, int rank);
/// Returns the neighbours around the node, or around the nodes among ranks with the same place on their node; `rank`
/// itself if it is alone there.
[[nodiscard]] Neighbours neighbours_inside(const exchange::Tiers& tiers, int rank);
[[nodiscard]] Neighbours neighbours_between(const exchange::Tiers& tiers, int rank);

/// Seconds in which this rank sends `bytes` to one neighbour and receives as many from the other.
using TimeExchange = std::function<double(const Neighbours& neighbours, std::uint64_t bytes)>;

/// Returns latency and bandwidth of each tier, the same numbers on every rank. Collective. On one node, or if nodes
/// differ in size, there is one tier: `inter`, between neighbours in rank order.
[[nodiscard]] exchange::Cluster measure_cluster(exchange::Peers& peers, const exchange::Tiers& tiers, int rank,
                                                const TimeExchange& exchange);
/// The measured time of calls of one size. `bytes` is what an ideal algorithm sends for one call on each rank.
struct TimedSize {
  double bytes = 0;
  double seconds = 0;
  double weight = 1;
};
/// Fits a link to calls that were made anyway: the line with the least sum of relative errors, so that one wrong size
/// does not bend it. No value if two sizes or fewer are known, if they lie too close together, or if the line fits
/// badly.
[[nodiscard]] std::optional<exchange::LinkCost> fit_link(std::span<const TimedSize> sizes);

/// Converts a measurement for people and the public interface.
[[nodiscard]] LinkEstimate to_estimate(const exchange::Cluster& cluster, double seconds);

}  // namespace gradwire::choice
