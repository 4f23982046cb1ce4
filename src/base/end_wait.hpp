// How long a process waits, all its waits together, for work that may never end before it gives up what that work uses:
// a job that ends many communicators after a failure must not wait anew for each.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/awake_time.hpp"

namespace gradwire {

/// What several waits share. Any thread may use it.
class EndBudget {
 public:
  explicit EndBudget(std::chrono::nanoseconds whole) : left_(whole.count()) {}

  /// Not below 0.
  [[nodiscard]] std::chrono::nanoseconds left() const noexcept {
    return std::chrono::nanoseconds(std::max<std::int64_t>(0, left_));
  }
  void spend(std::chrono::nanoseconds waited) noexcept { left_ -= waited.count(); }

 private:
  std::atomic<std::int64_t> left_;
};

/// That of the process: 30 seconds.
inline EndBudget& end_budget() noexcept {
  static EndBudget budget{std::chrono::seconds(30)};
  return budget;
}

/// One such wait, from its beginning to its end. The waiting thread asks at least every AwakeTime::kLook.
class EndWait {
 public:
  explicit EndWait(EndBudget& budget = end_budget()) : budget_(budget) {}
  ~EndWait() { budget_.spend(time_.waited()); }
  EndWait(const EndWait&) = delete;
  EndWait& operator=(const EndWait&) = delete;

  [[nodiscard]] bool over() { return time_.waited() >= budget_.left(); }
  [[nodiscard]] std::chrono::nanoseconds waited() { return time_.waited(); }

 private:
  EndBudget& budget_;
  AwakeTime time_;
};

}  // namespace gradwire
