// What observation takes of a step, by accounting and by pairs of steps.
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
  int blocks = 8;      // that are observed; three times as many are not
  double seconds = 1;  // of a block: several rounds of the reader
};

struct StepShare {
  double off_seconds = 0;     // of a step, median of blocks without
  double on_ratio = 1;        // of a block with to its neighbour without, median
  double off_ratio = 0;       // A/A: by how much two neighbours without differ, three quarters of them at most
  double events = 0;          // of a step, all ranks
  double reader_seconds = 0;  // CPU time of the collector's thread for a step
  std::uint64_t dropped = 0;
  /// Time of ranks and of the collector over that of the step.
  [[nodiscard]] double accounted(double seconds_per_event, int ranks) const {
    return (events / ranks * seconds_per_event + reader_seconds) / off_seconds;
  }
};

/// `make`: the sink for each block.
[[nodiscard]] StepShare step_share(const StepOptions& options,
                                   const std::function<std::shared_ptr<observe::Sink>()>& make);

}  // namespace gradwire::bench
