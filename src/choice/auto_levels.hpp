// Chooses the codec of each bucket, step by step, from forecasts that all ranks share, so that all ranks choose the
// same. No clocks, no ranks, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "choice/measurements.hpp"

namespace gradwire::choice {

/// The data on which the choice for one bucket is based.
struct BucketForecast {
  double ready_seconds = 0;  // from the start of the step
  WaySeconds seconds;        // its reduction, by level; quality falls with the level
  std::size_t most = 0;      // the last level that it may take now
};

struct StepForecast {
  double compute_seconds = 0;  // from the start of the step until the last gradient is ready
  std::vector<BucketForecast> buckets;
};

using Levels = std::vector<std::size_t>;  // by bucket

/// The time from the start of the step to the last result.
[[nodiscard]] double step_seconds(const StepForecast& forecast, const Levels& levels);

/// The levels with which the step is shortest. A bucket gets better quality if its communication is hidden behind the
/// backward pass, as long as the step takes at most `tolerance` longer.
[[nodiscard]] Levels best_levels(const StepForecast& forecast, double tolerance);

struct AutoLevelsOptions {
  double gain = 0.05;        // the share of the step that a change must save
  double tolerance = 0.01;   // share of the step that is given up for better quality
  double margin = 0.15;      // better quality must be free even if it takes this much longer than forecast
  std::uint64_t dwell = 20;  // steps between two changes; doubled each time that a change reverses the last one
  double urgent = 0.25;      // with at least this gain the dwell does not grow: the link has changed
};

struct Change {
  std::uint64_t step = 0;  // the first with the new levels
  Levels from;
  Levels to;
  std::string reason;  // "step 31 ms -> 22 ms"
  std::string cause;   // as in CodecSwitch
};

/// Moves every bucket towards its best level, one level at a time, if that makes the whole step shorter. Uses a
/// hysteresis with a dwell time; the caller takes medians over steps.
class AutoLevels {
 public:
  explicit AutoLevels(AutoLevelsOptions options) : options_(options) {}

  /// Takes the best levels at once. To be called at the start, before any step was measured.
  void start(std::uint64_t step, const StepForecast& forecast);
  /// To be called after step `step - 1`. Returns the change from `step` on, if any. Levels above a bucket's `most`
  /// always change.
  std::optional<Change> update(std::uint64_t step, const StepForecast& forecast);

  [[nodiscard]] const Levels& levels() const noexcept { return levels_; }

 private:
  [[nodiscard]] Levels moved_towards(const StepForecast& forecast, const Levels& target) const;

  AutoLevelsOptions options_;
  Levels levels_;
  std::uint64_t changed_ = 0;
  std::uint64_t dwell_ = 0;  // the current one
  int direction_ = 0;        // of the last change: 1 to fewer bits, -1 to better quality
};

}  // namespace gradwire::choice
