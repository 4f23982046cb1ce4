// Reports the steps of a running session: lines in the log, and events and counts for observers.
#pragma once

#include <memory>

#include "session/part/part.hpp"

namespace gradwire::session {

[[nodiscard]] std::unique_ptr<Part> make_observation(const PartInputs& inputs);

}  // namespace gradwire::session
