// Times in nanoseconds, bounded so that damaged files cannot cause an overflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace gradwire::watch::timeline {

/// The sum and the difference of two such times do not overflow. As a date it is in 2116.
inline constexpr std::int64_t kFarthest = (std::int64_t{1} << 62) - 1;

[[nodiscard]] inline std::int64_t bounded(std::int64_t time) { return std::clamp(time, -kFarthest, kFarthest); }

/// The time as a whole number; 0 for NaN.
[[nodiscard]] inline std::int64_t to_time(double nanoseconds) {
  constexpr double kFar = 4e18;  // below kFarthest
  return std::isnan(nanoseconds) ? 0 : static_cast<std::int64_t>(std::clamp(nanoseconds, -kFar, kFar));
}

}  // namespace gradwire::watch::timeline
