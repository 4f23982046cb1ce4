// How a plan treats sync modes: whether its groups and tensors allow them, and when buckets are synchronised.
#pragma once

#include <cstdint>
#include <string>

#include "gradwire/reduction.hpp"
#include "plan/plan.hpp"

namespace gradwire::plan {

/// Checks the sync mode of a policy that may have been made in code: Error(invalid_argument) for modes that the reader
/// would refuse or the session does not have; Error(unsupported) for rows. `source` is the policy's.
void check_sync(const Group& group, const std::string& source, Reduction reduction);
/// Checks that the session has the parameters that local steps change, equally many for all tensors of a bucket.
/// `others`: the number of another tensor of the bucket.
void check_parameters(const TensorPlan& tensor, std::uint32_t others);
/// Spreads the synchronisations of buckets of a staggered group evenly over its local steps.
void give_turns(Plan& plan);

}  // namespace gradwire::plan
