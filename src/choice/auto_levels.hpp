// Which codec each bucket gets, step by step: decided from forecasts that all ranks share, so that all decide alike. No
// clocks, no ranks, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "choice/measurements.hpp"

namespace gradwire::choice {

/// What the choice for one bucket rests on.
struct BucketForecast {
  double ready_seconds = 0;  // from the start of the step
  WaySeconds seconds;        // its reduction, by level; quality falls with the level
  std::size_t most = 0;      // the last level that it may take now
};

struct StepForecast {
  double compute_seconds = 0;  // from the start of the step until the last gradient is there
  std::vector<BucketForecast> buckets;
};

using Levels = std::vector<std::size_t>;  // by bucket

/// From the start of the step to the last result.
[[nodiscard]] double step_seconds(const StepForecast& forecast, const Levels& levels);

/// The levels with which the step is shortest; among those that take at most `tolerance` longer, of better quality
/// where communication is hidden behind the backward pass anyway.
[[nodiscard]] Levels best_levels(const StepForecast& forecast, double tolerance);

struct AutoLevelsOptions {
  double gain = 0.05;        // the share of the step that a change must save
  double tolerance = 0.01;   // of the step, given up for better quality
  double margin = 0.15;      // better quality must be free even if it takes this much longer than forecast
  std::uint64_t dwell = 20;  // steps between two changes; twice as many each time that one takes back the one before
  double urgent = 0.25;      // a gain from which on the dwell does not grow: the link is another one
};

struct Change {
  std::uint64_t step = 0;  // the first with the new levels
  Levels from;
  Levels to;
  std::string reason;  // "step 31 ms -> 22 ms"
  std::string cause;   // as CodecSwitch
};

/// Moves every bucket towards its best level, one level at a time, where the whole step gains by it. The rule is that
/// of a hysteresis with a dwell time; medians over steps are the caller's.
class AutoLevels {
 public:
  explicit AutoLevels(AutoLevelsOptions options) : options_(options) {}

  /// Takes the best levels at once: at the start, when nothing is known of steps.
  void start(std::uint64_t step, const StepForecast& forecast);
  /// After step `step - 1`. What changes from `step` on, if anything does; levels above a bucket's `most` change
  /// always.
  std::optional<Change> update(std::uint64_t step, const StepForecast& forecast);

  [[nodiscard]] const Levels& levels() const noexcept { return levels_; }

 private:
  [[nodiscard]] Levels moved_towards(const StepForecast& forecast, const Levels& target) const;

  AutoLevelsOptions options_;
  Levels levels_;
  std::uint64_t changed_ = 0;
  std::uint64_t dwell_ = 0;  // now
  int direction_ = 0;        // of the last change: 1 to fewer bits, -1 to better quality
};

}  // namespace gradwire::choice
