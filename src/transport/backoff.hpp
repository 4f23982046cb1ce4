// Polite polling: yields for a moment after the last sign of life, then sleeps, longer the longer nothing happens.
// Ranks that share cores must not steal them from ranks that compute. Where a caller would wait inside MPI, which
// polls, the moment is longer.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace gradwire::transport {

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::microseconds kYield{50};

  explicit Backoff(std::chrono::microseconds yield = kYield) noexcept : yield_(yield) {}

  /// Something happened: a completion, or an operation was posted.
  void touch() noexcept { touched_ = true; }

  /// Gives the core away, not beyond `deadline` as far as the kernel's timers allow.
  void pause(Clock::time_point deadline) noexcept {
    const auto now = Clock::now();
    last_ = touched_ ? now : last_;
    touched_ = false;
    const auto idle = now - last_;
    if (idle < yield_ || now < contended_until_) {
      sched_yield();
      return;
    }
    const auto asked =
        std::min<Clock::duration>(std::clamp<Clock::duration>(idle / 8, kShortest, kLongest), deadline - now);
    std::this_thread::sleep_for(asked);
    // Woken late: others want the cores. Then to yield takes nothing from them, and keeps this thread's turn.
    const auto woken = Clock::now();
    if (woken - now - asked > kLate) {
      contended_until_ = woken + kContended;
    }
  }

 private:
  // A sleep takes some 55 us longer than asked. Longer ones would let a fast link's socket buffers run dry.
  static constexpr std::chrono::microseconds kShortest{10};
  static constexpr std::chrono::microseconds kLongest{100};
  static constexpr std::chrono::microseconds kLate{500};
  static constexpr std::chrono::milliseconds kContended{20};

  std::chrono::microseconds yield_;
  bool touched_ = false;  // since the last pause; nobody looks at the clock for that
  Clock::time_point last_ = Clock::now();
  Clock::time_point contended_until_;
};

}  // namespace gradwire::transport
