// Measures the link and the ways to reduce over it, on all ranks at once: what codec = "auto" starts from. Collective;
// nothing else may be under way.
#pragma once

#include <functional>
#include <optional>

#include "choice/link_measurement.hpp"
#include "choice/measurements.hpp"
#include "exchange/model/cost_model.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

/// As choice::measure_cluster(), by what the runner can measure: `probes` are the runner's; so below.
[[nodiscard]] exchange::Cluster measure_cluster(Runner& runner, Probes& probes, const exchange::Tiers& tiers);

/// Times every way that the plan's buckets may take, at a small size and at one that takes some milliseconds; each as
/// these steps would make it. `link`: given, not measured. Else `measured` is told what
/// it is, on every rank alike, and may change the plan's algorithms before anything is timed.
using LinkMeasured = std::function<void(const Link&)>;
[[nodiscard]] choice::Measurements calibrate(Runner& runner, Probes& probes, const plan::Plan& plan,
                                             const StepsAhead& steps, const std::optional<Link>& link,
                                             const LinkMeasured& measured);

}  // namespace gradwire::session
