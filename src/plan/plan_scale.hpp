// What a plan makes of tensors that were added with a scale.
#pragma once

#include "plan/plan.hpp"

namespace gradwire::plan {

/// Whether its scale is ever of use: not where nothing is ever lost, as its bucket is then what it is without.
/// Error(unsupported) under sync modes.
[[nodiscard]] bool is_preconditioned(const TensorPlan& tensor);

}  // namespace gradwire::plan
