// After how many steps ranks look for slow ones again. Pure: no clock; the same on every rank, from the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gradwire::session {

class ComparisonPace {
 public:
  static constexpr std::uint64_t kFirst = 8;     // steps until the first comparison, and the fewest between two
  static constexpr double kGrowth = 16;          // of the steps so far: of few, less is known of the next ones
  static constexpr double kLeastSeconds = 0.5;   // between two, so that one odd step does not make a line
  static constexpr double kCost = 0.0003;        // of the time of steps: one comparison of the interval before it,
  static constexpr double kMostOfAll = 0.00045;  // and all of them of all steps, with what each step notes
  static constexpr double kNoting = 1.1e-9;      // seconds, of every step

  /// From the last comparison to the next one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return next_; }
  /// They compared, after `steps` of `step_seconds` on average, and it took `cost` seconds.
  void compared(double steps, double step_seconds, double cost) noexcept {
    // The lower one of two: a rank that lost its core meanwhile would end the comparison for minutes.
    const bool is_first = !compared_;
    const double usual = is_first ? cost : std::min(cost, cost_);
    compared_ = true;
    cost_ = cost;
    spent_ += usual;
    steps_ += steps;
    seconds_ += steps * step_seconds;
    const double step = std::max(step_seconds, 1e-6);
    const double wanted = std::max(usual / kCost, kLeastSeconds) / step;
    // Of shorter steps than 2.7 us, noting takes almost all of it.
    const double earned = std::max(kMostOfAll * step - kNoting, kMostOfAll * step / 10);
    const double owed = (spent_ + usual + kNoting * steps_ - kMostOfAll * seconds_) / earned;
    // The second one may cost what it will: a rank that is slow from the start is named after half a second.
    const double next = is_first ? std::min(kLeastSeconds / step, kGrowth * steps_)
                                 : std::max(std::min(wanted, kGrowth * steps_), owed);
    next_ = std::max(kFirst, static_cast<std::uint64_t>(std::min(next, kMost)));
  }

 private:
  static constexpr double kMost = 1e15;  // of steps, as whole numbers hold them

  bool compared_ = false;
  double cost_ = 0;     // of the latest one
  double spent_ = 0;    // on all of them
  double steps_ = 0;    // all,
  double seconds_ = 0;  // and what they took
  std::uint64_t next_ = kFirst;
};

}  // namespace gradwire::session
