// Which codec each bucket gets, from what all ranks report of their steps. No clocks, no ranks, no I/O: the same calls
// on every rank choose alike.
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

/// What a rank reports of its last steps: medians.
struct LinkReport {
  double step_seconds = 0;
  double busy_seconds = 0;
  double wait_share = 0;        // of busy
  double bytes_per_second = 0;  // sent while busy
  double probed = 0;            // bytes a second, by a measurement of the link alone; 0: none
  std::vector<double> ready_seconds = {};
};

/// One rank's view of all: the slowest rank counts for what steps wait for, the one that waited least for the link.
[[nodiscard]] LinkReport combined(const std::vector<LinkReport>& reports);
/// The link's bandwidth after such a report: what was sent where ranks waited for the link, at least that elsewhere.
[[nodiscard]] double bandwidth_after(double before, const LinkReport& report);
/// Whether ranks wait for the link so much that what they send is what it carries, and nothing need be measured beside.
[[nodiscard]] bool only_the_link(const LinkReport& report);

class AutoChoice {
 public:
  /// `plan` must outlive this. Of the policy only [link] and [auto] count: the plan has the rest.
  AutoChoice(const plan::Plan& plan, const Policy& policy);

  /// Takes the best levels for `step`, the first one, by what was measured.
  Change start(std::uint64_t step, Measurements measured);

  struct Decision {
    std::optional<Change> change;
    bool moved = false;       // the next step has other levels: what was seen so far does not tell of it
    std::uint64_t trial = 0;  // steps, the next ones, after which to decide again; 0: no trial
  };
  /// After `step`: what ranks report of the steps since the last decision that moved, and by bucket the worst samples.
  Decision decide(std::uint64_t step, const LinkReport& report, std::span<const QualitySample> samples);

  [[nodiscard]] std::span<const BucketChoice> choices() const noexcept { return choices_; }
  [[nodiscard]] const Measurements& measurements() const noexcept { return measurements_; }

 private:
  void learn(const LinkReport& report);
  void learn_link(const LinkReport& report);
  /// Returns why a level is given up, where one is.
  std::string guard(std::uint64_t step, std::span<const QualitySample> samples);
  [[nodiscard]] StepForecast forecast(std::uint64_t step, const LinkReport* report) const;
  void correct(std::vector<Ways>& buckets, double busy_seconds) const;
  [[nodiscard]] double forecast_busy(const std::vector<Ways>& buckets) const;
  [[nodiscard]] std::optional<Levels> next_trial(std::uint64_t step, const StepForecast& forecast);
  /// The levels that lie there from those in use, as far as they are allowed.
  [[nodiscard]] Levels neighbour(int direction, const StepForecast& forecast) const;
  void apply(const Levels& levels);

  // Levels next to the one in use, and not to compress, to be tried now and then: forecasts of what is not in use rest
  // on measurements that were made when ranks did nothing else.
  struct Neighbour {
    int direction;          // of what would be below dense, it is dense
    std::uint64_t due = 0;  // step
    std::uint64_t interval = 0;
  };

  const plan::Plan& plan_;
  bool tries_;
  AutoLevels auto_levels_;
  Guard guard_;
  Measurements measurements_;
  static constexpr std::size_t kLate = 3;  // decisions, by which a probe may be late
  std::deque<std::vector<Ways>> earlier_;  // forecasts before the last of these, the oldest first
  std::vector<BucketChoice> choices_;
  std::uint64_t started_ = 0;
  static constexpr int kToDense = -1000;
  static constexpr std::size_t kNeighbours = 3;
  std::array<Neighbour, kNeighbours> neighbours_{{{1}, {-1}, {kToDense}}};
  bool trying_ = false;
};

}  // namespace gradwire::choice
