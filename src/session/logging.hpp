// Binds the library's log to spdlog, on standard error.
#pragma once

namespace gradwire::session {

/// Once a process; the level comes from GRADWIRE_LOG. Error(invalid_argument) for a level that is none.
void bind_log();

}  // namespace gradwire::session
