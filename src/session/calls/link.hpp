// Session::link() of one engine.
#pragma once

#include "session/engine/engine.hpp"

namespace gradwire::session {

/// What the part that chooses codecs knows of the link; else it is measured, by all ranks together.
[[nodiscard]] LinkEstimate link_of(Engine& engine);

}  // namespace gradwire::session
