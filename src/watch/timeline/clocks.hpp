// Clocks of hosts, compared by the messages between them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradwire::watch::timeline {

/// A message: when it was handed over by the sender's clock, and seen by the receiver's, in nanoseconds.
struct Exchange {
  int from = 0;  // clocks
  int to = 0;
  std::int64_t sent = 0;
  std::int64_t seen = 0;
};

/// How one clock is to be read.
struct ClockFit {
  struct Knot {
    std::int64_t time = 0;   // of this clock
    std::int64_t ahead = 0;  // of the first clock, then
  };
  std::vector<Knot> knots;  // by time; between them a line
  std::int64_t error = 0;   // at most so far from what is true, as far as messages can tell
  bool known = true;        // false: no messages reach it both ways; `ahead` is by the date

  [[nodiscard]] std::int64_t common(std::int64_t time) const;
};

/// Relative to clock 0. For each pair the quickest message each way bounds the difference: the middle is taken, and
/// half of what is between them is its error. Errors add up along the way from clock 0, and each clock is reached by
/// the way of the least. So it is for every two seconds, because clocks drift, with lines between them. `dates`: what
/// to add to each for a date, for clocks that no messages reach.
[[nodiscard]] std::vector<ClockFit> fit_clocks(std::span<const std::int64_t> dates,
                                               std::span<const Exchange> exchanges);

}  // namespace gradwire::watch::timeline
