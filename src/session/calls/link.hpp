// Session::link() over one engine.
#pragma once

#include "session/engine/engine.hpp"

namespace gradwire::session {

/// Returns the link as the part that chooses codecs knows it. If that part knows none, all ranks measure it together.
[[nodiscard]] LinkEstimate link_of(Engine& engine);

}  // namespace gradwire::session
