// What the comparison of ranks takes of a step, by accounting.
#pragma once

#include <cstdint>

#include "bench/observe/step_share.hpp"

namespace gradwire::bench {

struct ComparisonShare {
  double step_seconds = 0;
  double steps = 0;
  double comparisons = 0;
  double each_seconds = 0;   // of the rank for which one takes longest
  double frames = 0;         // of a step, that a rank receives
  double frame_seconds = 0;  // to note whom a frame was waited for
  double end_seconds = 0;    // to note the end of a step
  // Of a step.
  [[nodiscard]] double comparing() const { return comparisons * each_seconds / steps; }
  [[nodiscard]] double noting() const { return frames * frame_seconds + end_seconds; }
};

/// Of `options` the ranks, elements, codec and link; dense: the transport's own sums. Plays steps for `seconds`.
[[nodiscard]] ComparisonShare comparison_share(const StepOptions& options, double seconds);

}  // namespace gradwire::bench
