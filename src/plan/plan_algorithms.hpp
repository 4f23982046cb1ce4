// Chooses the algorithm of each bucket, and the codecs that depend on it.
#pragma once

#include <optional>
#include <vector>

#include "gradwire/link.hpp"
#include "plan/plan.hpp"
#include "policy/stage.hpp"

namespace gradwire::plan {

/// The policy with the algorithm of large buckets where it leaves the algorithm open.
[[nodiscard]] TensorPolicy typical(TensorPolicy policy, const Plan& plan);

/// The stages of a tensor policy that names its algorithm. `all`: the policy that it belongs to.
[[nodiscard]] std::vector<policy::Stage> stages_of(const TensorPolicy& policy, const Plan& plan, const Policy& all);
[[nodiscard]] std::vector<policy::Level> levels_of(const TensorPolicy& policy, const Plan& plan, const Policy& all);

/// Sets algorithm and codecs of a full bucket. Error(unsupported) where a codec does not support its dtype.
void settle(Bucket& bucket, const Plan& plan, const Policy& all, const std::optional<Link>& link);
/// Sets them again, before anything has travelled, for buckets whose codec and algorithm are both open: by the link
/// that all ranks have measured.
void settle_again(Plan& plan, const Policy& all, const Link& measured);

}  // namespace gradwire::plan
