// A timeline as a file that Perfetto opens.
#pragma once

#include <ostream>
#include <string_view>

#include "watch/timeline/layout.hpp"
#include "watch/timeline/messages.hpp"

namespace gradwire::watch::timeline {

/// This text stands near the beginning of each such file.
inline constexpr std::string_view kTraceMark = "made by gradwire trace merge";

/// Whether this build can write one: it needs protobuf.
[[nodiscard]] bool can_write_traces() noexcept;

/// Writes the file; the state of `out` tells whether that worked. Error(unsupported), which says what to install, where
/// this build cannot write it.
void write_trace(const Recording& recording, const Alignment& alignment, const Timeline& timeline, std::ostream& out);

}  // namespace gradwire::watch::timeline
