// Times a piece of work that may be repeated.
#pragma once

#include <algorithm>
#include <chrono>

namespace gradwire::choice {

/// Returns the seconds of the fastest run within the budget, since other runs were disturbed. Makes at least two runs,
/// since the first one warms up.
template <class Run>
[[nodiscard]] double quickest_seconds(std::chrono::nanoseconds budget, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + budget;
  double best = 0;
  for (int runs = 0; runs < 2 || Clock::now() < end; ++runs) {
    const Clock::time_point start = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = runs == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace gradwire::choice
