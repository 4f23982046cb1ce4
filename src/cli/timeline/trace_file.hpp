// A timeline as a file that Perfetto opens.
#pragma once

#include <ostream>

#include "cli/timeline/layout.hpp"
#include "cli/timeline/messages.hpp"

namespace gradwire::cli::timeline {

/// Whether this build can write one: it needs protobuf.
[[nodiscard]] bool can_write_traces() noexcept;

/// Whether it was written, `out` says. Error(unsupported) where this build cannot; the message says what to install.
void write_trace(const Recording& recording, const Alignment& alignment, const Timeline& timeline, std::ostream& out);

}  // namespace gradwire::cli::timeline
