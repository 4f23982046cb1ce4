// Compares clocks of hosts by the messages between them. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradwire::watch::timeline {

/// A message: when it was sent by the sender's clock, and received by the receiver's clock, in nanoseconds.
struct Exchange {
  int from = 0;  // numbers of clocks
  int to = 0;
  std::int64_t sent = 0;
  std::int64_t seen = 0;
};

/// How to convert the times of one clock.
struct ClockFit {
  struct Knot {
    std::int64_t time = 0;   // by this clock
    std::int64_t ahead = 0;  // how far it is ahead of the first clock at that time
  };
  std::vector<Knot> knots;  // by time; straight lines lie between them
  std::int64_t error = 0;   // largest error, as far as messages can tell
  bool known = true;        // false: no messages reach it both ways, and `ahead` comes from the date

  [[nodiscard]] std::int64_t common(std::int64_t time) const;
};

/// Fits clocks relative to clock 0. For each pair the quickest message each way bounds the difference: the middle of
/// the bounds is taken, and half their distance is its error. Errors add up along the way from clock 0, and each clock
/// is reached by the way with the least error. This is done for every two seconds, because clocks drift, with lines
/// between them. `dates`: the number to add to each clock for a date, for clocks that no messages reach.
[[nodiscard]] std::vector<ClockFit> fit_clocks(std::span<const std::int64_t> dates,
                                               std::span<const Exchange> exchanges);

}  // namespace gradwire::watch::timeline
