// Times the contenders on one message size, in alternating blocks, and checks their results.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/all_reduce/contender.hpp"
#include "bench/all_reduce/options.hpp"

namespace gradwire::bench {

struct Measurement {
  std::vector<double> seconds;      // of each timed call: the slowest rank's
  std::vector<double> cpu_seconds;  // of each timed call: all ranks together, all their threads
  double bytes_sent = 0;            // per call, by the rank that sent most
  double interface_bytes = 0;       // sent by the busiest rank's network device, per call; NaN: not known
  double relative_error = 0;        // L2, against the sum in f64
  bool ranks_equal = true;          // hashes of the results, first and last call
  double extra_memory = 0;          // bytes beyond the tensors at the peak of a first call, on the worst rank
};

/// Returns one measurement for each recipe, the same on every rank. Collective over the world.
[[nodiscard]] std::vector<Measurement> measure(const std::vector<ContenderRecipe>& recipes, const Options& options,
                                               std::uint64_t bytes);

}  // namespace gradwire::bench
