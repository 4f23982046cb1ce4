// Measures the link and the ways to reduce over it, on all ranks at once: what codec = "auto" starts from. Collective;
// nothing else may be under way.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "exchange/model/cost_model.hpp"
#include "exchange/model/level_forecast.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

/// The ranks that one rank exchanges with in a measurement.
struct Neighbours {
  int to;
  int from;
};
/// Around the node, or around the nodes among ranks of equal place in theirs; `rank` itself where it is alone there.
[[nodiscard]] Neighbours neighbours_inside(const exchange::Tiers& tiers, int rank);
[[nodiscard]] Neighbours neighbours_between(const exchange::Tiers& tiers, int rank);

/// Latency and bandwidth of each tier, the same numbers on every rank. On one node, or where nodes differ in size,
/// there is one tier: `inter`, between neighbours in rank order. `probes`: the runner's; so below.
[[nodiscard]] exchange::Cluster measure_cluster(Runner& runner, Probes& probes, const exchange::Tiers& tiers);
/// For people and the public interface.
[[nodiscard]] LinkEstimate to_estimate(const exchange::Cluster& cluster, double seconds);

/// The ways in which a bucket can be reduced, timed.
struct BucketWays {
  std::vector<exchange::LevelForecast> levels;  // as Bucket::levels; level 0: the faster of dense's two
  bool native = false;                          // level 0 is the transport's own all-reduce
};

struct Calibration {
  exchange::Cluster cluster;
  std::vector<BucketWays> buckets;  // as in the plan; no levels where the codec is not chosen
  double seconds = 0;               // that it took
};

/// Times every way that the plan's buckets may take, at a small size and at one that takes some milliseconds; each as
/// these steps would make it. `link`: given, not measured. Else `measured` is told what
/// it is, on every rank alike, and may change the plan's algorithms before anything is timed.
using LinkMeasured = std::function<void(const Link&)>;
[[nodiscard]] Calibration calibrate(Runner& runner, Probes& probes, const plan::Plan& plan, const StepsAhead& steps,
                                    const std::optional<Link>& link, const LinkMeasured& measured);

}  // namespace gradwire::session
