#include "exchange/model/level_forecast.hpp"

#include <algorithm>
#include <cmath>

namespace gradwire::exchange {
namespace {

constexpr double kLeastFactor = 0.1;
constexpr double kMostFactor = 20;
constexpr double kPastTheLink = 0.9;  // bytes that took less than this share of the wire's time passed in a burst

// The least time of the elements that the large reduction has beyond the small one: their bytes at the rate of the
// link, if these are so few that they may have passed in a burst. A reduction that moved as much as the exchange that
// showed the rate needs no such bound.
double least_seconds(const Cluster& cluster, const Way& way, const Timing& small, const Timing& large) {
  const double wire = way_cost(cluster, way, large.elements).wire;
  if (wire * cluster.inter.bytes_per_second > cluster.inter.seen_bytes / 2) {
    return 0;
  }
  return kPastTheLink * (wire - way_cost(cluster, way, small.elements).wire);
}

}  // namespace

Cost way_cost(const Cluster& cluster, const Way& way, double elements, double chunk_bytes) {
  if (way.native) {
    return dense_cost(cluster, elements, way.first.bytes);
  }
  switch (way.algorithm) {
    case Algorithm::hierarchical: return hierarchical_cost(cluster, elements, way.intra, way.first, chunk_bytes);
    case Algorithm::one_shot: return one_shot_cost(cluster, elements, way.first, chunk_bytes);
    default: return two_shot_cost(cluster, elements, way.first, way.second, chunk_bytes);
  }
}

double model_seconds(const Cluster& cluster, const Way& way, double elements) {
  const Cost cost = way_cost(cluster, way, elements);
  return std::max(0.0, cost.total - cost.latency);
}

Fit fit(const Cluster& cluster, const Way& way, std::span<const Timing> timings) {
  if (timings.empty()) {
    return {.overhead_seconds = way_cost(cluster, way, 0).latency};
  }
  const Timing& small = timings.front();
  const Timing& large = timings.back();
  const double modelled = model_seconds(cluster, way, large.elements) - model_seconds(cluster, way, small.elements);
  const double more = large.seconds - small.seconds;
  constexpr double kAlike = 0.75;  // a smaller ratio of large to small is no noise: the first reduction started slowly
  if (!(modelled > 0) || !(large.seconds > kAlike * small.seconds)) {
    return {.overhead_seconds = std::min(way_cost(cluster, way, 0).latency, large.seconds)};
  }
  const double least = std::max(kLeastFactor, least_seconds(cluster, way, small, large) / modelled);
  const double factor = std::clamp(more / modelled, least, kMostFactor);
  const double quicker = std::min(small.seconds, large.seconds);  // two similar times do not show what elements cost
  return {std::max(0.0, quicker - factor * model_seconds(cluster, way, small.elements)), factor};
}

void LevelForecast::correct(double ratio, bool wholly) {
  constexpr double kMostCorrection = 4;
  if (ratio > 0 && std::isfinite(ratio)) {
    const double bounded = std::clamp(ratio, 1 / kMostCorrection, kMostCorrection);
    const double step = wholly ? bounded : std::sqrt(bounded);  // unlike pow(), the same bits on every machine
    fit_.factor = std::clamp(fit_.factor * step, kLeastFactor, kMostFactor);
    fit_.overhead_seconds *= step;
  }
}

}  // namespace gradwire::exchange
