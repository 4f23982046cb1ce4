// Serves the page pool of a session's process: it sets the options, and between steps lets it trim and compact.
#pragma once

#include <chrono>

#include "session/engine/core.hpp"

namespace gradwire::session {

/// Sets the options of the pool by the session's policy, and its limit by the ranks of this host that share it. Where
/// nodes are not known, or worlds change (`undoable`), the others' memory is taken already and none is set aside.
/// Throws Error(unsupported) where the policy asks for locked memory, and the system does not allow it.
void configure_host_memory(const Policy& policy, const RunnerInfo& info, bool undoable);

/// The session calls it between two steps. It moves residuals and rows of tables where compaction is due and no
/// bucket is under way.
void tend_host_memory(Core& core, std::chrono::steady_clock::time_point now);

}  // namespace gradwire::session
