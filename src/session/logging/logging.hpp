// Binds the library's log to spdlog, on standard error.
#pragma once

#include "base/log.hpp"

namespace gradwire::session {

/// Once a process; the level comes from GRADWIRE_LOG. One that is none is told.
void bind_log();
/// Lines name this rank from now on. Where a process holds sessions of several ranks, they name none.
void name_rank(int rank);
/// Whether lines of this level are printed: texts that are long to make need not be made.
[[nodiscard]] bool logs(LogLevel level) noexcept;

}  // namespace gradwire::session
