// Measures the cost of one event, and the number of events that a reader loses.
#pragma once

#include <cstdint>

#include "observe/collector.hpp"

namespace gradwire::bench {

/// Nanoseconds of the recording thread, medians of `rounds`.
struct EventCosts {
  double moment = 0;  // one look at the clock, and the event
  double span = 0;    // two looks
};
[[nodiscard]] EventCosts event_costs(observe::ClockKind clock, int rounds);

/// Returns the nanoseconds that a place which would record a span adds to a loop while nobody reads.
[[nodiscard]] double cost_when_off(int rounds);

struct Loss {
  double events_per_second = 0;  // as recorded
  std::uint64_t events = 0;
  std::uint64_t dropped = 0;
  double reader_seconds = 0;  // CPU time of the collector's thread
};
/// Runs one thread that records at this rate for `seconds`, beside a reader that wakes every 100 ms.
[[nodiscard]] Loss reader_loss(double events_per_second, double seconds);

}  // namespace gradwire::bench
