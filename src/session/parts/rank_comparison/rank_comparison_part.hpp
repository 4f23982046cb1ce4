// The comparison of ranks (GRADWIRE_SLOW) as a part of a session.
#pragma once

#include <memory>

#include "session/part/part.hpp"

namespace gradwire::session {

/// Made with the session, which warns at once of a GRADWIRE_SLOW that is none. Ranks tell each other what theirs says
/// when they agree on the plan, and only then know whether they compare: not in a world of one, nor under sync modes,
/// where ranks need not be at the same step, nor over a device.
[[nodiscard]] std::unique_ptr<Part> make_rank_comparison(const PartInputs& inputs);

}  // namespace gradwire::session
