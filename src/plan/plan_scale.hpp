// How a plan treats tensors that were added with a scale.
#pragma once

#include "plan/plan.hpp"

namespace gradwire::plan {

/// Whether the tensor's scale is ever used: if no codec loses anything, the scale changes nothing. Error(unsupported)
/// under sync modes.
[[nodiscard]] bool is_preconditioned(const TensorPlan& tensor);

}  // namespace gradwire::plan
