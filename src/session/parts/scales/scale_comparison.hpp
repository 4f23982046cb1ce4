// Checks that ranks encode by the same scales (TensorOptions::scale); otherwise each would decode its own results.
#pragma once

#include <memory>

#include "session/part/part.hpp"

namespace gradwire::session {

/// Returns null if the plan encodes no tensor by its scale, and in a world of one. The part compares hashes of the
/// scales in the first two steps and then every 64 steps. If they differ, it throws Error(mismatch), which names the
/// tensor and the ranks, on every rank.
[[nodiscard]] std::unique_ptr<Part> make_scale_comparison(const PartInputs& inputs);

}  // namespace gradwire::session
