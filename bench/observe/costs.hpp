// What one event costs, and what a reader loses.
#pragma once

#include <cstdint>

#include "observe/collector.hpp"

namespace gradwire::bench {

/// Nanoseconds of the thread that records, medians of `rounds`.
struct EventCosts {
  double moment = 0;  // one look at the clock, and the event
  double span = 0;    // two looks
};
[[nodiscard]] EventCosts event_costs(observe::ClockKind clock, int rounds);

/// Of a place that would record a span, while nobody reads: what it adds to a loop.
[[nodiscard]] double cost_when_off(int rounds);

struct Loss {
  double events_per_second = 0;  // as recorded
  std::uint64_t events = 0;
  std::uint64_t dropped = 0;
  double reader_seconds = 0;  // CPU time of the collector's thread
};
/// One thread records at that rate for so long, beside a reader that wakes every 100 ms.
[[nodiscard]] Loss reader_loss(double events_per_second, double seconds);

}  // namespace gradwire::bench
