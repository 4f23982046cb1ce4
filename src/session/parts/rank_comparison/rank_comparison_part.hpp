// The comparison of ranks (GRADWIRE_SLOW) as a part of a session.
#pragma once

#include <memory>

#include "session/part/part.hpp"

namespace gradwire::session {

/// Makes the part. The session makes it at its start, so that it warns at once of an invalid GRADWIRE_SLOW. Ranks tell
/// each other their values when they agree on the plan, and only then know whether they compare. They do not in a world
/// of one, under sync modes, where ranks need not be at the same step, or over a device.
[[nodiscard]] std::unique_ptr<Part> make_rank_comparison(const PartInputs& inputs);

}  // namespace gradwire::session
