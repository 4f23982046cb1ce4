// What a rank sees of its own steps between two comparisons.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "gradwire/statistics.hpp"
#include "observe/peer_waits.hpp"
#include "observe/slow_ranks.hpp"
#include "session/part/part.hpp"

namespace gradwire::session {

/// CPU time in seconds.
[[nodiscard]] double process_cpu_seconds();
[[nodiscard]] double thread_cpu_seconds();

/// For how long steps waited for nobody although the process did nothing.
class GapWatch {
 public:
  using Time = StepTimer::Time;

  /// `waits` outlives this.
  GapWatch(const observe::PeerWaits& waits, Time now) : waits_(waits), asked_(now), cpu_(process_cpu_seconds()) {}

  /// Between two looks at the CPU time, which take half a microsecond, 5 ms go by.
  [[nodiscard]] bool due(Time now) const { return now - asked_ >= kAsks; }
  /// A step took `step` seconds, of which `exposed` in finish(). `excused`: seconds of waits, ever, that no PeerWaits
  /// was told of.
  void note(Time now, double step, double exposed, double excused);
  /// What comes from here on is of the next comparison.
  void restart(Time now, double excused) {
    waited_ = waits_.total() + excused;
    cpu_ = process_cpu_seconds();
    asked_ = now;
  }
  /// The longest gap since the last take(), and what waits were none.
  [[nodiscard]] observe::RankSeen take() { return std::exchange(sums_, {}); }

 private:
  static constexpr std::chrono::milliseconds kAsks{5};

  const observe::PeerWaits& waits_;
  Time asked_;  // when the process was looked at last, what CPU time it had used,
  double cpu_;
  double waited_ = 0;  // and how long this rank had waited for others
  observe::RankSeen sums_;
};

/// What this rank had seen at the last comparison, and so what it has seen since.
class OwnSteps {
 public:
  using Time = StepTimer::Time;

  /// All of these outlive this; `steps` counts the session's.
  OwnSteps(Runner& runner, observe::PeerWaits& waits, const StepWatch& steps, Time now);

  [[nodiscard]] std::uint64_t count() const noexcept { return watch_.steps_ever() - steps_before_; }
  /// A step has ended that does not count.
  void leave_out(Time::duration step, double exposed) {
    ++steps_before_;
    exposed_before_ += exposed;
    since_ += step;
  }
  /// The steps that count begin. `excused` as in GapWatch.
  void begin(double excused);
  /// Time went by that belongs to no step.
  void skip(Time::duration time) { since_ += time; }
  /// Steps until `ended`, with what GapWatch saw. The next ones begin there.
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
  double ranks_here_ = 1;  // that share this process
  // At the last comparison, and later by steps that did not count.
  std::uint64_t steps_before_;
  double exposed_before_;
  Time since_;
  double excused_before_ = 0;
  Statistics totals_;
  Process process_;
};

}  // namespace gradwire::session
