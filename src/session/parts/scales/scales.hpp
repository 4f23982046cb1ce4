// Whether ranks encode by the same scales (TensorOptions::scale): otherwise each would decode results of its own.
#pragma once

#include <memory>

#include "session/part/part.hpp"

namespace gradwire::session {

/// Null where the plan encodes no tensor by its scale, and in a world of one. The part compares hashes of the scales in
/// the first two steps and every 64, and throws Error(mismatch) on every rank that names the tensor and the ranks.
[[nodiscard]] std::unique_ptr<Part> make_scales(const PartInputs& inputs);

}  // namespace gradwire::session
