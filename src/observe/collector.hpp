// Reads the rings of all threads and gives their events to sinks, on a thread of its own.
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
  std::uint32_t thread = 0;  // the thread's number in the process
  std::span<const Event> events;
};

/// Everything that was recorded since the round before.
struct Round {
  ClockKind clock = ClockKind::none;
  TimeScale scale;
  std::span<const Stretch> stretches = {};
  std::span<const Snapshot> snapshots = {};
  std::uint64_t recorded = 0;    // since the collector started, by all threads
  std::uint64_t dropped = 0;     // since the collector started, because rings were full
  std::uint64_t ring_bytes = 0;  // size of all rings, whose memory is touched as they fill
  double collector_seconds = 0;  // CPU time of the collector's thread so far
  bool last = false;             // the sink gets no more
};

class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;
  /// Called by one thread at a time. The events behind `round` are invalid afterwards. A sink that throws gets no more
  /// rounds.
  virtual void take(const Round& round) = 0;
  /// Called after a round: whether the sink wants no more. Without sinks nothing is recorded.
  [[nodiscard]] virtual bool done() const noexcept { return false; }
};

/// To be called in a catch block: logs that an exporter failed and gets no more rounds, since it would fail again.
void tell_failure() noexcept;

struct CollectorOptions {
  std::chrono::milliseconds interval{100};
  std::size_t ring_events = kRingEvents;  // a power of two
  ClockKind clock = best_clock();
};

/// Adds a sink. The first one begins the recording and starts the thread, with `options`. A forked child records
/// nothing and has no sinks until one is added there. Any thread may call this.
void add_sink(std::shared_ptr<Sink> sink, const CollectorOptions& options = {});
/// Makes a last round for the sink and removes it; without the last sink recording ends.
void remove_sink(const std::shared_ptr<Sink>& sink);
/// Makes a round now, on this thread.
void collect();
/// Removes all sinks as remove_sink() does; at the end of the process that happens by itself.
void stop_collecting();

}  // namespace gradwire::observe
