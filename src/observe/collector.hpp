// Reads the rings of all threads and hands what is there to sinks, on a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "observe/clock.hpp"
#include "observe/event.hpp"
#include "observe/ring.hpp"
#include "observe/sources.hpp"

namespace gradwire::observe {

/// Events of one thread, in the order in which it recorded them.
struct Stretch {
  std::uint32_t thread = 0;  // a number of it in the process
  std::span<const Event> events;
};

/// What came since the round before.
struct Round {
  ClockKind clock = ClockKind::none;
  TimeScale scale;
  std::span<const Stretch> stretches = {};
  std::span<const Snapshot> snapshots = {};
  std::uint64_t recorded = 0;    // since the collector started, by all threads
  std::uint64_t dropped = 0;     // likewise: rings were full
  std::uint64_t ring_bytes = 0;  // of all rings; touched as they are filled
  double collector_seconds = 0;  // CPU time of the collector's thread so far
  bool last = false;             // the sink gets no more
};

class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;
  /// One thread at a time; what `round` refers to is gone afterwards. A sink that throws gets no more.
  virtual void take(const Round& round) = 0;
  /// After a round: whether it wants no more. Without sinks nothing is recorded.
  [[nodiscard]] virtual bool done() const noexcept { return false; }
};

/// In a catch block: says that an exporter failed and gets no more. It would fail again.
void tell_failure() noexcept;

struct CollectorOptions {
  std::chrono::milliseconds interval{100};
  std::size_t ring_events = kRingEvents;  // a power of two
  ClockKind clock = best_clock();
};

/// Begins to record, and starts the thread with the first sink; `options` count then. A child that forks off records
/// nothing and has no sinks, until one is added there. Any thread.
void add_sink(std::shared_ptr<Sink> sink, const CollectorOptions& options = {});
/// A last round for the sink; with the last sink recording ends.
void remove_sink(const std::shared_ptr<Sink>& sink);
/// A round now, on this thread.
void collect();
/// As remove_sink() for all; at the end of the process it comes by itself.
void stop_collecting();

}  // namespace gradwire::observe
