// What a session tells of its steps while it runs: lines in the log, events and counts for whoever observes.
#pragma once

#include <memory>

#include "session/part/part.hpp"

namespace gradwire::session {

[[nodiscard]] std::unique_ptr<Part> make_observation(const PartInputs& inputs);

}  // namespace gradwire::session
