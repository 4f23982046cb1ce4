// Checks what a policy asks of a session, and what of it holds there.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace gradwire::plan {

/// Checks the parts of a policy that was made in code, and so has not been checked by the reader. Throws
/// Error(invalid_argument), and Error(unsupported) for what the executor of the plan cannot run.
void check_policy(const Policy& policy, const PlanOptions& options);

/// Returns the policy of a group as it holds in a session with this plan: dense sends uncompressed values with any
/// codec, and an algorithm that ranks or devices do not allow is replaced. What has no effect becomes a note or a
/// warning of the plan. `who`: the group's name, for messages. Throws Error(invalid_argument), Error(unsupported).
[[nodiscard]] TensorPolicy effective_policy(TensorPolicy of_group, const std::string& who, Plan& plan,
                                            const Policy& policy);

}  // namespace gradwire::plan
