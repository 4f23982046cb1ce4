// A timeline as a file that Perfetto opens.
#pragma once

#include <ostream>
#include <string_view>

#include "watch/timeline/layout.hpp"
#include "watch/timeline/messages.hpp"

namespace gradwire::watch::timeline {

/// Stands near the begin of each such file.
inline constexpr std::string_view kTraceMark = "made by gradwire trace merge";

/// Whether this build can write one: it needs protobuf.
[[nodiscard]] bool can_write_traces() noexcept;

/// Whether it was written, `out` says. Error(unsupported) where this build cannot; the message says what to install.
void write_trace(const Recording& recording, const Alignment& alignment, const Timeline& timeline, std::ostream& out);

}  // namespace gradwire::watch::timeline
