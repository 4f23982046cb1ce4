// Times in nanoseconds that damaged files cannot bring beyond what whole numbers hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace gradwire::watch::timeline {

/// The sum and the difference of two such times are whole numbers too. As a date it is in 2116.
inline constexpr std::int64_t kFarthest = (std::int64_t{1} << 62) - 1;

[[nodiscard]] inline std::int64_t bounded(std::int64_t time) { return std::clamp(time, -kFarthest, kFarthest); }

/// 0 for what is no number.
[[nodiscard]] inline std::int64_t to_time(double nanoseconds) {
  constexpr double kFar = 4e18;  // below kFarthest
  return std::isnan(nanoseconds) ? 0 : static_cast<std::int64_t>(std::clamp(nanoseconds, -kFar, kFar));
}

}  // namespace gradwire::watch::timeline
