// The measurements of the link, and of every way in which something can be reduced. Choices rest on nothing else.
//
// A way has a number: 0 is uncompressed, and i uses the i-th codec that the policy allows. A session times a few
// reductions at its start and uses forecasts from then on, since it has many buckets and cannot make a step twice. A
// drop-in now and then makes the job's own calls every way, and needs no forecast.
#pragma once

#include <vector>

#include "exchange/model/cost_model.hpp"
#include "exchange/model/level_forecast.hpp"

namespace gradwire::choice {

/// Seconds by way on the slowest rank, the same on all ranks. Infinite for a way that must not be chosen.
using WaySeconds = std::vector<double>;

/// The timed ways in which a bucket can be reduced.
struct Ways {
  std::vector<exchange::LevelForecast> levels;  // as Bucket::levels; level 0 is the faster of the two dense ways
  bool native = false;                          // level 0 is the transport's own all-reduce
};

struct Measurements {
  exchange::Cluster cluster;
  std::vector<Ways> buckets;  // as in the plan; no levels if the codec is not chosen
  double seconds = 0;         // time that the measurement took
};

}  // namespace gradwire::choice
