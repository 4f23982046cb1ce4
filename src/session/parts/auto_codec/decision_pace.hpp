// DecisionPace says after which steps ranks compare their measurements. It says the same on every rank.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradwire/policy.hpp"

namespace gradwire::session {

class DecisionPace {
 public:
  explicit DecisionPace(const Policy::AutoOptions& options)
      : cost_(options.cost), least_steps_(std::clamp<std::uint64_t>(options.dwell, 1, kLeastStepsBetween)) {}

  /// Begins anew with `step`, the step of the first choice.
  void begin(std::uint64_t step) {
    first_ = step;
    next_ = step + least_steps_;
  }
  [[nodiscard]] bool due(std::uint64_t step) const noexcept { return step >= next_; }
  /// Ranks have compared after `step`, which took `seconds`. Comparisons are frequent at first, since little is known;
  /// in the long run they take no more than the share `cost_` of the time.
  void compared(std::uint64_t step, double seconds, double step_seconds) {
    const double steps = std::min(seconds / (std::max(cost_, 1e-9) * std::max(step_seconds, 1e-6)),
                                  static_cast<double>(step - first_) / 2);
    next_ = step + static_cast<std::uint64_t>(
                       std::clamp(steps, static_cast<double>(least_steps_), static_cast<double>(kMostSteps)));
  }
  /// Ranks compare next after `step`.
  void compare_after(std::uint64_t step) noexcept { next_ = step; }

 private:
  static constexpr std::uint64_t kLeastStepsBetween = 5;  // steps between comparisons that cost nothing
  static constexpr std::uint64_t kMostSteps = 100'000;    // between comparisons

  double cost_;                // share of the time that comparisons may take
  std::uint64_t least_steps_;  // between comparisons
  std::uint64_t first_ = 0;    // the step of the first choice
  std::uint64_t next_ = 0;     // the step after which ranks compare
};

}  // namespace gradwire::session
