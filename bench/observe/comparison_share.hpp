// Computes the share of a step that the comparison of ranks takes, from the costs of its parts.
#pragma once

#include <cstdint>

#include "bench/observe/step_share.hpp"

namespace gradwire::bench {

struct ComparisonShare {
  double step_seconds = 0;
  double steps = 0;
  double comparisons = 0;
  double each_seconds = 0;   // of one comparison, on the slowest rank
  double frames = 0;         // received by a rank in a step
  double frame_seconds = 0;  // to note for which peer a frame was awaited
  double end_seconds = 0;    // to note the end of a step
  // Returns the seconds of a step that comparing takes.
  [[nodiscard]] double comparing() const { return comparisons * each_seconds / steps; }
  [[nodiscard]] double noting() const { return frames * frame_seconds + end_seconds; }
};

/// Runs steps for `seconds`. Uses ranks, elements, codec and link of `options`; the codec "dense" means the transport's
/// own sums.
[[nodiscard]] ComparisonShare comparison_share(const StepOptions& options, double seconds);

}  // namespace gradwire::bench
