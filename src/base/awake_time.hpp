// Measures a wait without the time in which this process did not run because it was stopped, its container paused, or
// its machine asleep. The processes that it waits for were mostly stopped with it, so they are not late.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/mutex.hpp"

namespace gradwire {

/// Measures how long a thread has waited while the process ran. The waiting thread calls waited() at least every kLook;
/// a longer gap between two calls means that the process was stopped, and counts as kLook.
class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLook{1};

  explicit AwakeTime(Clock::time_point now = Clock::now()) : looked_(now) {}

  void restart(Clock::time_point now) {
    looked_ = now;
    waited_ = {};
  }
  Clock::duration waited(Clock::time_point now = Clock::now()) {
    waited_ += std::clamp<Clock::duration>(now - looked_, Clock::duration(0), kLook);
    looked_ = now;
    return waited_;
  }

 private:
  Clock::time_point looked_;
  Clock::duration waited_{};
};

/// Sleeps between two looks at a device, except at first: a short wait ends sooner than a sleep would.
inline void pause_after(std::chrono::nanoseconds waited) {
  if (waited > std::chrono::microseconds(200)) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// The same as `changed.wait_for(mutex, limit, reached)`. The analysis does not know that `reached` names the same
/// mutex.
template <typename Reached>
bool wait_awake(CondVar& changed, Mutex& mutex, std::chrono::nanoseconds limit, Reached&& reached)
    REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
  AwakeTime time;
  for (auto left = limit; left.count() > 0; left = limit - time.waited()) {
    if (changed.wait_for(mutex, std::min<std::chrono::nanoseconds>(left, AwakeTime::kLook), reached)) {
      return true;
    }
  }
  return reached();
}

}  // namespace gradwire
