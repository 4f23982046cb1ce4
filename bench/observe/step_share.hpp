// Measures the share of a step that observation takes, by costs of events and by comparing blocks of steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "observe/collector.hpp"

namespace gradwire::bench {

struct StepOptions {
  int ranks = 4;               // as threads
  std::uint64_t elements = 0;  // of all gradients, in 16 tensors
  std::string codec = "int8";
  std::string link;    // empty: memory
  int blocks = 8;      // observed blocks; three times as many are not observed
  double seconds = 1;  // per block, for several rounds of the reader
};

struct StepShare {
  double off_seconds = 0;     // of a step that is not observed, median over blocks
  double on_ratio = 1;        // time of an observed block / its unobserved neighbour, median
  double off_ratio = 0;       // A/A: relative difference of two unobserved neighbours, 75% quantile
  double events = 0;          // per step, of all ranks
  double reader_seconds = 0;  // CPU time of the collector's thread per step
  std::uint64_t dropped = 0;
  /// Returns the time of a rank and of the collector for events / the time of the step.
  [[nodiscard]] double accounted(double seconds_per_event, int ranks) const {
    return (events / ranks * seconds_per_event + reader_seconds) / off_seconds;
  }
};

/// `make` makes the sink for each observed block.
[[nodiscard]] StepShare step_share(const StepOptions& options,
                                   const std::function<std::shared_ptr<observe::Sink>()>& make);

}  // namespace gradwire::bench
