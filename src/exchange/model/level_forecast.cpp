#include "exchange/model/level_forecast.hpp"

#include <algorithm>
#include <cmath>

namespace gradwire::exchange {
namespace {

constexpr double kLeastFactor = 0.1;
constexpr double kMostFactor = 20;
constexpr double kPastTheLink = 0.9;  // of the wire's time: what took less was let through by a burst

// What elements beyond the small ones take at least: their bytes at the rate of the link, where these are so few that a
// burst may have let them through. What moved as much as the exchange that showed the rate knows better.
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
  constexpr double kAlike = 0.75;  // large to small: less is no noise, but a start that was slow
  if (!(modelled > 0) || !(large.seconds > kAlike * small.seconds)) {
    return {.overhead_seconds = std::min(way_cost(cluster, way, 0).latency, large.seconds)};
  }
  const double least = std::max(kLeastFactor, least_seconds(cluster, way, small, large) / modelled);
  const double factor = std::clamp(more / modelled, least, kMostFactor);
  const double quicker = std::min(small.seconds, large.seconds);  // of two alike, neither tells what elements cost
  return {std::max(0.0, quicker - factor * model_seconds(cluster, way, small.elements)), factor};
}

void LevelForecast::correct(double ratio, bool wholly) {
  constexpr double kMostCorrection = 4;
  if (ratio > 0 && std::isfinite(ratio)) {
    const double bounded = std::clamp(ratio, 1 / kMostCorrection, kMostCorrection);
    const double step = wholly ? bounded : std::sqrt(bounded);  // the same bits on every machine, as pow() is not
    fit_.factor = std::clamp(fit_.factor * step, kLeastFactor, kMostFactor);
    fit_.overhead_seconds *= step;
  }
}

}  // namespace gradwire::exchange
