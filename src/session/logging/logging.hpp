// Binds the library's log to spdlog, on standard error.
#pragma once

#include "base/log.hpp"

namespace gradwire::session {

/// Binds the log once per process. The level comes from GRADWIRE_LOG; a value that is no level is logged as a warning.
void bind_log();
/// Lets log lines name this rank from now on. If a process holds sessions of several ranks, the lines name none.
void name_rank(int rank);
/// Whether lines of this level are printed. If not, callers need not build expensive texts.
[[nodiscard]] bool logs(LogLevel level) noexcept;

}  // namespace gradwire::session
