// What files say of where and when they were written.
#pragma once

#include <cstdint>
#include <string>

namespace gradwire::watch {

/// Of this host; empty where it has none.
[[nodiscard]] std::string host_name();

/// CLOCK_REALTIME: nanoseconds since 1970.
[[nodiscard]] std::int64_t realtime_nanoseconds() noexcept;

}  // namespace gradwire::watch
