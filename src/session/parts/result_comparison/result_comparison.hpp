// Compares the results of steps among ranks, which is for finding mistakes (SessionOptions::compare_ranks_every).
#pragma once

#include <memory>

#include "session/part/part.hpp"

namespace gradwire::session {

/// Returns null if the options ask for no comparison. After each step that is due, the part throws Error(mismatch),
/// which names the ranks whose results differ.
[[nodiscard]] std::unique_ptr<Part> make_result_comparison(const PartInputs& inputs);

}  // namespace gradwire::session
