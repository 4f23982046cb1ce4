// Chooses the codec of each bucket from what all ranks report about their steps. There are no clocks, ranks or I/O
// here, so the same calls on every rank lead to the same choices.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "choice/auto_levels.hpp"
#include "choice/bucket_choice.hpp"
#include "choice/guard.hpp"
#include "choice/measurements.hpp"
#include "plan/plan.hpp"

namespace gradwire::choice {

/// The medians that a rank reports about its last steps.
struct LinkReport {
  double step_seconds = 0;
  double busy_seconds = 0;
  double wait_share = 0;        // of busy_seconds
  double bytes_per_second = 0;  // sent while busy
  double probed = 0;            // bytes per second by a measurement of the link alone; 0: none
  std::vector<double> ready_seconds = {};
};

/// Returns one report for all ranks: the slowest rank counts for the times that steps wait for, and the rank that
/// waited least for the share of waiting and the busy time.
[[nodiscard]] LinkReport combined(const std::vector<LinkReport>& reports);
/// Returns the link's bandwidth after such a report: the rate of sending if ranks waited for the link, else at least
/// that.
[[nodiscard]] double bandwidth_after(double before, const LinkReport& report);
/// Whether ranks wait for the link so much that they send at the link's rate, and no other measurement is needed.
[[nodiscard]] bool only_the_link(const LinkReport& report);

class AutoChoice {
 public:
  /// `plan` must outlive this object. Only [link] and [auto] of the policy count, since the plan has the rest.
  AutoChoice(const plan::Plan& plan, const Policy& policy);

  /// Chooses the best levels for `step`, the first one, from the measurements.
  Change start(std::uint64_t step, Measurements measured);

  struct Decision {
    std::optional<Change> change;
    bool moved = false;       // the next step has other levels, of which earlier samples say nothing
    std::uint64_t trial = 0;  // number of next steps in a trial, after which to decide again; 0: no trial
  };
  /// Decides after `step`. `report` covers the steps since the last decision that moved, and `samples` has the worst
  /// sample of each bucket.
  Decision decide(std::uint64_t step, const LinkReport& report, std::span<const QualitySample> samples);

  [[nodiscard]] std::span<const BucketChoice> choices() const noexcept { return choices_; }
  [[nodiscard]] const Measurements& measurements() const noexcept { return measurements_; }

 private:
  void learn(const LinkReport& report);
  void learn_link(const LinkReport& report);
  /// Returns why a level is given up, or an empty text.
  std::string guard(std::uint64_t step, std::span<const QualitySample> samples);
  [[nodiscard]] StepForecast forecast(std::uint64_t step, const LinkReport* report) const;
  void correct(std::vector<Ways>& buckets, double busy_seconds) const;
  [[nodiscard]] double forecast_busy(const std::vector<Ways>& buckets) const;
  [[nodiscard]] std::optional<Levels> next_trial(std::uint64_t step, const StepForecast& forecast);
  /// Returns the levels that lie `direction` away from those in use, as far as they are allowed.
  [[nodiscard]] Levels neighbour(int direction, const StepForecast& forecast) const;
  void apply(const Levels& levels);

  // A choice that is tried now and then: a level next to the one in use, or no compression. Forecasts of unused levels
  // rest on measurements that were made while ranks did nothing else.
  struct Neighbour {
    int direction;          // levels to move by; below dense it is dense
    std::uint64_t due = 0;  // step
    std::uint64_t interval = 0;
  };

  const plan::Plan& plan_;
  bool tries_;
  AutoLevels auto_levels_;
  Guard guard_;
  Measurements measurements_;
  static constexpr std::size_t kLate = 3;  // number of decisions by which a probe may be late
  std::deque<std::vector<Ways>> earlier_;  // forecasts before the last kLate decisions, the oldest first
  std::vector<BucketChoice> choices_;
  std::uint64_t started_ = 0;
  static constexpr int kToDense = -1000;
  static constexpr std::size_t kNeighbours = 3;
  std::array<Neighbour, kNeighbours> neighbours_{{{1}, {-1}, {kToDense}}};
  bool trying_ = false;
};

}  // namespace gradwire::choice
