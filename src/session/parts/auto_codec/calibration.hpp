// Measures the link and the ways to reduce over it, on all ranks at once. codec = "auto" starts from these
// measurements. Collective; nothing else may be under way.
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

/// Calls choice::measure_cluster() with the runner's measurements. Here and below, `probes` are the runner's.
[[nodiscard]] exchange::Cluster measure_cluster(Runner& runner, Probes& probes, const exchange::Tiers& tiers);

/// Times every way that the plan's buckets may take, at a small size and at one that takes some milliseconds, each as
/// the steps of a training would make it. A given `link` is not measured. Otherwise all ranks pass the measured link to
/// `measured`, which may change the plan's algorithms before anything is timed.
using LinkMeasured = std::function<void(const Link&)>;
[[nodiscard]] choice::Measurements calibrate(Runner& runner, Probes& probes, const plan::Plan& plan,
                                             const StepsAhead& steps, const std::optional<Link>& link,
                                             const LinkMeasured& measured);

}  // namespace gradwire::session
