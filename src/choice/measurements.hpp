// What was measured: of the link, and of every way in which something can be reduced. Choices rest on nothing else.
//
// A way has a number: 0 is uncompressed, i is by the i-th codec that the policy allows. A session times a few
// reductions at its start and has forecasts from there on, since its buckets are many and its steps cannot be made
// twice. A drop-in makes the job's own calls every way now and then, and needs no forecast.
#pragma once

#include <vector>

#include "exchange/model/cost_model.hpp"
#include "exchange/model/level_forecast.hpp"

namespace gradwire::choice {

/// Seconds by way, on the slowest rank: the same on all. Infinite for a way that must not be chosen.
using WaySeconds = std::vector<double>;

/// The ways in which a bucket can be reduced, timed.
struct Ways {
  std::vector<exchange::LevelForecast> levels;  // as Bucket::levels; level 0: the faster of dense's two
  bool native = false;                          // level 0 is the transport's own all-reduce
};

struct Measurements {
  exchange::Cluster cluster;
  std::vector<Ways> buckets;  // as in the plan; no levels where the codec is not chosen
  double seconds = 0;         // that it took
};

}  // namespace gradwire::choice
