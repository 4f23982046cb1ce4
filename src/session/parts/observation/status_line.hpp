// A sign of life in the log of a long job: one line after the first step, and then one every half minute.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gradwire::session {

/// The numbers that a line reports.
struct Progressed {
  std::uint64_t step = 0;      // the step that has ended
  std::uint64_t steps = 0;     // since the session began or its counters were reset
  double exposed_seconds = 0;  // of these steps
  std::uint64_t calls = 0;     // of collectives
  double ratio = 1;
};

class StatusLine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kInterval{30};

  [[nodiscard]] bool due(Time now) const noexcept { return !told_ || now - *told_ >= kInterval; }
  /// Returns "step 120: 41.2 ms a step since the line before, 3.1 ms of it exposed; 360 calls, ratio 3.94".
  [[nodiscard]] std::string tell(const Progressed& now, Time time);

 private:
  std::optional<Time> told_;
  Progressed before_;
};

}  // namespace gradwire::session
