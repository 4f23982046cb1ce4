// The host and the time that files name as theirs.
#pragma once

#include <cstdint>
#include <string>

namespace gradwire::watch {

/// The name of this host; empty where it has none.
[[nodiscard]] std::string host_name();

/// CLOCK_REALTIME: nanoseconds since 1970.
[[nodiscard]] std::int64_t realtime_nanoseconds() noexcept;

}  // namespace gradwire::watch
