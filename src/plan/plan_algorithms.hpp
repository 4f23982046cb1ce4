// Which algorithm each bucket takes, and the codecs that follow from it.
#pragma once

#include <optional>
#include <vector>

#include "gradwire/link.hpp"
#include "plan/plan.hpp"
#include "policy/stage.hpp"

namespace gradwire::plan {

/// Where the policy leaves the algorithm open: the one of large buckets.
[[nodiscard]] TensorPolicy typical(TensorPolicy policy, const Plan& plan);

/// Of a policy that names its algorithm. `all`: the policy that it is of.
[[nodiscard]] std::vector<policy::Stage> stages_of(const TensorPolicy& policy, const Plan& plan, const Policy& all);
[[nodiscard]] std::vector<policy::Level> levels_of(const TensorPolicy& policy, const Plan& plan, const Policy& all);

/// Algorithm and codecs of a bucket that is full. Error(unsupported) where a codec does not support its dtype.
void settle(Bucket& bucket, const Plan& plan, const Policy& all, const std::optional<Link>& link);
/// The same once more, before anything has travelled, for buckets whose codec and algorithm are both open: by the link
/// as all ranks have measured it.
void settle_again(Plan& plan, const Policy& all, const Link& measured);

}  // namespace gradwire::plan
