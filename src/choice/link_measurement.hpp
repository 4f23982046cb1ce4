// Measures a link: by exchanges that grow until they take long enough for an error of the latency to be small. Sessions
// measure between neighbours on all ranks at once, `gradwire doctor` between two ranks while all others sleep. Drop-ins
// that only observe take the job's own calls for exchanges.
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

/// Makes so many exchanges of `bytes`. Returns the seconds of the quickest: the others were disturbed. All who take
/// part must get the same number, since what they do next depends on it.
using TimeExchanges = std::function<double(int rounds, std::uint64_t bytes)>;

/// The latency of such exchanges, and the rate at which bytes add to it. A link `within` one node lets no burst through
/// that its rate would not carry: what moved least tells of it, too.
[[nodiscard]] exchange::LinkCost measure_link(const TimeExchanges& time, bool within = false);

/// The ranks that one rank exchanges with in a measurement.
struct Neighbours {
  int to;
  int from;
};
/// In rank order.
[[nodiscard]] Neighbours neighbours_in_ring(int world_size, int rank);
/// Around the node, or around the nodes among ranks of equal place in theirs; `rank` itself where it is alone there.
[[nodiscard]] Neighbours neighbours_inside(const exchange::Tiers& tiers, int rank);
[[nodiscard]] Neighbours neighbours_between(const exchange::Tiers& tiers, int rank);

/// Of one message of an exchange: as small as chunks, which links see later.
inline constexpr std::uint64_t kExchangePart = 32ULL << 10;

/// Seconds in which this rank sends `bytes` to one neighbour and receives as many from the other.
using TimeExchange = std::function<double(const Neighbours& neighbours, std::uint64_t bytes)>;

/// Latency and bandwidth of each tier, the same numbers on every rank. Collective. On one node, or where nodes differ
/// in size, there is one tier: `inter`, between neighbours in rank order.
[[nodiscard]] exchange::Cluster measure_cluster(exchange::Peers& peers, const exchange::Tiers& tiers, int rank,
                                                const TimeExchange& exchange);
/// Calls of one size, as timed: bytes that an ideal algorithm sends for one, a rank.
struct TimedSize {
  double bytes = 0;
  double seconds = 0;
  double weight = 1;
};
/// A link by calls that were made anyway: the line whose relative errors, summed, are least, so that one size that is
/// wrong does not bend it. None where two sizes or fewer are known, where they lie too close together, and where the
/// line is poor.
[[nodiscard]] std::optional<exchange::LinkCost> fit_link(std::span<const TimedSize> sizes);

/// For people and the public interface.
[[nodiscard]] LinkEstimate to_estimate(const exchange::Cluster& cluster, double seconds);

}  // namespace gradwire::choice
