// Polite polling: a waiting thread yields for a moment after the last sign of life, then sleeps, longer the longer
// nothing happens. Ranks that share cores must not steal them from ranks that compute. Where a caller would otherwise
// wait inside MPI, which polls, the moment is longer. Where waits usually last longer than that moment, as on slow
// links, the thread sleeps at once, since yielding first would waste the moment with every message.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace gradwire::transport {

/// Decides how long to pause between two polls. It is pure: it uses no clock and no thread.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Patience(std::chrono::microseconds yield) noexcept : yield_(yield) {}

  /// Notes that an operation was posted.
  void posted(Clock::time_point now) noexcept { last_ = now; }

  /// Notes that an operation was completed, which ends a wait if next() was called before.
  void completed(Clock::time_point now) noexcept {
    last_ = now;
    if (began_) {
      const auto waited = std::min<Clock::duration>(now - *began_, kLongestSeen);
      usual_ += (waited - usual_) / kWeight;
      began_.reset();
    }
  }

  /// How long to sleep; 0: only yield.
  [[nodiscard]] Clock::duration next(Clock::time_point now) noexcept {
    began_ = began_.value_or(now);
    const auto idle = now - last_;
    const bool soon = usual_ <= std::max<Clock::duration>(yield_, kWorthSleeping);
    if ((soon && idle < yield_) || now < contended_until_) {
      return Clock::duration(0);
    }
    return std::max(std::clamp<Clock::duration>(idle / 8, kShortest, kLongest), usual_ / 4);
  }

  /// Notes how long a sleep took. If it ended late, other threads want the cores: yielding then takes nothing from
  /// them, and keeps this thread's turn.
  void slept(Clock::duration asked, Clock::time_point from, Clock::time_point until) noexcept {
    if (until - from - asked > kLate) {
      contended_until_ = until + kContended;
    }
  }

  /// The average duration of the last waits.
  [[nodiscard]] Clock::duration usual() const noexcept { return usual_; }

 private:
  // A sleep takes some 55 us longer than asked. Longer sleeps would let a fast link's socket buffers run dry.
  static constexpr std::chrono::microseconds kShortest{10};
  static constexpr std::chrono::microseconds kLongest{100};
  static constexpr std::chrono::microseconds kLate{500};
  static constexpr std::chrono::milliseconds kContended{20};
  static constexpr std::chrono::microseconds kWorthSleeping{120};  // so the shortest sleep does not look like a wait
  static constexpr std::chrono::milliseconds kLongestSeen{1};      // a pause of the job says nothing of the link
  static constexpr int kWeight = 8;

  std::chrono::microseconds yield_;
  Clock::time_point last_ = Clock::now();
  std::optional<Clock::time_point> began_;  // when this wait began
  Clock::duration usual_{0};
  Clock::time_point contended_until_;
};

class Backoff {
 public:
  using Clock = Patience::Clock;

  static constexpr std::chrono::microseconds kYield{50};

  explicit Backoff(std::chrono::microseconds yield = kYield) noexcept : patience_(yield) {}

  // These two do not read the clock while nothing waits.
  void posted() noexcept { touched_ = true; }
  void completed() noexcept {
    if (waits_) {
      patience_.completed(Clock::now());
    }
    touched_ = !waits_;
    waits_ = false;
  }

  /// Gives the core away, but not beyond `deadline`, as far as the kernel's timers allow.
  void pause(Clock::time_point deadline) noexcept {
    const auto now = Clock::now();
    if (touched_) {
      patience_.posted(now);
    }
    touched_ = false;
    waits_ = true;
    const auto asked = std::min<Clock::duration>(patience_.next(now), deadline - now);
    if (asked <= Clock::duration(0)) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(asked);
    patience_.slept(asked, now, Clock::now());
  }

 private:
  Patience patience_;
  bool touched_ = false;  // an operation was posted or completed since the last pause
  bool waits_ = false;    // pause() was called since an operation was completed
};

}  // namespace gradwire::transport
