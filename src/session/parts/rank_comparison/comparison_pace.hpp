// Decides after how many steps ranks look for slow ranks again. It uses no clock, and decides the same on every rank
// from the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gradwire::session {

class ComparisonPace {
 public:
  static constexpr std::uint64_t kFirst = 8;  // steps until the first comparison, and the fewest between two
  static constexpr double kGrowth = 16;  // times the steps so far, at most: few steps say little about the next ones
  static constexpr double kLeastSeconds = 0.5;   // between comparisons, so that one odd step is not reported
  static constexpr double kCost = 0.0003;        // the share of an interval that one comparison may take
  static constexpr double kMostOfAll = 0.00045;  // the share of all steps for comparisons and notes
  static constexpr double kNoting = 1.1e-9;      // seconds in which a step notes its numbers

  /// Returns the number of steps from the last comparison to the next one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return next_; }
  /// Notes that ranks compared after `steps` steps of `step_seconds` on average, which took `cost` seconds.
  void compared(double steps, double step_seconds, double cost) noexcept {
    // This takes the lower of the last two costs: a rank that lost its core during one comparison would otherwise end
    // comparisons for minutes.
    const bool is_first = !compared_;
    const double usual = is_first ? cost : std::min(cost, cost_);
    compared_ = true;
    cost_ = cost;
    spent_ += usual;
    steps_ += steps;
    seconds_ += steps * step_seconds;
    const double step = std::max(step_seconds, 1e-6);
    const double wanted = std::max(usual / kCost, kLeastSeconds) / step;
    // In steps shorter than 2.7 us, the notes take almost the whole budget; comparisons then get a tenth of it.
    const double earned = std::max(kMostOfAll * step - kNoting, kMostOfAll * step / 10);
    const double owed = (spent_ + usual + kNoting * steps_ - kMostOfAll * seconds_) / earned;
    // The second comparison ignores its cost, so that a rank that is slow from the start is named after half a second.
    const double next = is_first ? std::min(kLeastSeconds / step, kGrowth * steps_)
                                 : std::max(std::min(wanted, kGrowth * steps_), owed);
    next_ = std::max(kFirst, static_cast<std::uint64_t>(std::min(next, kMost)));
  }

 private:
  static constexpr double kMost = 1e15;  // steps, which std::uint64_t can hold

  bool compared_ = false;
  double cost_ = 0;     // seconds of the latest comparison
  double spent_ = 0;    // seconds on all comparisons
  double steps_ = 0;    // all steps so far
  double seconds_ = 0;  // their time
  std::uint64_t next_ = kFirst;
};

}  // namespace gradwire::session
