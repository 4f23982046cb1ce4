// What a plan makes of sync modes: whether its groups and tensors allow them, and when buckets are synchronised.
#pragma once

#include <cstdint>
#include <string>

#include "gradwire/reduction.hpp"
#include "plan/plan.hpp"

namespace gradwire::plan {

/// A policy made in code has passed no reader: Error(invalid_argument) for what that would refuse, and where the
/// session cannot do it; Error(unsupported) for rows. `source` is the policy's.
void check_sync(const Group& group, const std::string& source, Reduction reduction);
/// Local steps change parameters, which the session must be able to reach, alike for all that travel together.
/// `others`: those of another tensor of the bucket.
void check_parameters(const TensorPlan& tensor, std::uint32_t others);
/// Buckets of a group that takes turns are synchronised at steps spread evenly over its local steps.
void give_turns(Plan& plan);

}  // namespace gradwire::plan
