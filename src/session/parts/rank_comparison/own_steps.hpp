// Measures a rank's own steps between two comparisons.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "gradwire/statistics.hpp"
#include "observe/peer_waits.hpp"
#include "observe/slow_ranks.hpp"
#include "session/part/part.hpp"

namespace gradwire::session {

/// Return CPU time in seconds.
[[nodiscard]] double process_cpu_seconds();
[[nodiscard]] double thread_cpu_seconds();

/// Finds gaps: times in which a step waited for no rank although the process did nothing.
class GapWatch {
 public:
  using Time = StepTimer::Time;

  /// `waits` must outlive this.
  GapWatch(const observe::PeerWaits& waits, Time now) : waits_(waits), asked_(now), cpu_(process_cpu_seconds()) {}

  /// Returns whether 5 ms have passed since the last look at the CPU time, which takes half a microsecond.
  [[nodiscard]] bool due(Time now) const { return now - asked_ >= kAsks; }
  /// Notes a step that took `step` seconds, of which `exposed` were in finish(). `excused`: the sum so far of waits
  /// that no PeerWaits was told of, in seconds.
  void note(Time now, double step, double exposed, double excused);
  /// Begins the interval of the next comparison.
  void restart(Time now, double excused) {
    waited_ = waits_.total() + excused;
    cpu_ = process_cpu_seconds();
    asked_ = now;
  }
  /// Returns the longest gap since the last take(), and as `wait_seconds`, which is not positive, a correction by the
  /// time in finish() that was a gap and no wait.
  [[nodiscard]] observe::RankSeen take() { return std::exchange(sums_, {}); }

 private:
  static constexpr std::chrono::milliseconds kAsks{5};

  const observe::PeerWaits& waits_;
  Time asked_;  // the last look at the CPU time
  double cpu_;
  double waited_ = 0;  // how long this rank had waited for other ranks at that look
  observe::RankSeen sums_;
};

/// Measures this rank's steps since the last comparison, by the difference to what it had measured then.
class OwnSteps {
 public:
  using Time = StepTimer::Time;

  /// All of these outlive this; `steps` counts the session's steps.
  OwnSteps(Runner& runner, observe::PeerWaits& waits, const StepWatch& steps, Time now);

  [[nodiscard]] std::uint64_t count() const noexcept { return watch_.steps_ever() - steps_before_; }
  /// Leaves out a step that has ended and does not count.
  void leave_out(Time::duration step, double exposed) {
    ++steps_before_;
    exposed_before_ += exposed;
    since_ += step;
  }
  /// Begins with the steps that count. `excused` as in GapWatch.
  void begin(double excused);
  /// Leaves out time that belongs to no step.
  void skip(Time::duration time) { since_ += time; }
  /// Returns the measurements of the steps until `ended`, added to those of GapWatch in `seen`. The next steps begin
  /// there.
  [[nodiscard]] observe::RankSeen take(Time ended, double excused, observe::RankSeen seen);

 private:
  struct Process {
    double cpu_seconds = 0;
    double delayed_seconds = 0;
  };
  static Process look_at_process();

  Runner& runner_;
  observe::PeerWaits& waits_;
  const StepWatch& watch_;
  double ranks_in_process_ = 1;  // ranks that share this process
  // The values at the last comparison, advanced by steps that did not count.
  std::uint64_t steps_before_;
  double exposed_before_;
  Time since_;
  double excused_before_ = 0;
  Statistics totals_;
  Process process_;
};

}  // namespace gradwire::session
