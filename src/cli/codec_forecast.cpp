#include "cli/codec_forecast.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "exchange/default_codecs.hpp"
#include "gradwire/error.hpp"
#include "plan/memory_use.hpp"
#include "plan/plan.hpp"

namespace gradwire::cli {
namespace {

constexpr double kWorthwhile = 0.05;  // a smaller gain is not worth a loss of quality

const exchange::CodecCost& cost_of(std::span<const Candidate> candidates, const CodecSpec& codec) {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& candidate) { return candidate.codec == codec; });
  if (found == candidates.end()) {
    throw Error(ErrorCode::internal, "forecast: nothing is known of codec " + codec.to_string());
  }
  return found->cost;
}

double elements_of(const ModelFile& model) {
  double elements = 0;
  for (const TensorInfo& layer : model.layers) {
    elements += static_cast<double>(layer.count);
  }
  return elements;
}

// Bytes of an uncompressed element: 16-bit tensors as they are, others as f32.
double dense_bytes(DType dtype) { return static_cast<double>(element_bytes(dtype)); }

// The codecs of a bucket, chosen as a session chooses them.
struct Hops {
  exchange::CodecCost first;  // for hierarchical: between nodes
  exchange::CodecCost second;
  exchange::CodecCost intra;
};

Hops hops_of(const exchange::Cluster& cluster, const plan::Bucket& bucket, const CodecSpec& codec, Algorithm algorithm,
             std::span<const Candidate> candidates) {
  const CodecSpec inside =
      algorithm == Algorithm::hierarchical ? exchange::intra_codec(codec, std::nullopt) : CodecSpec::exact();
  Hops hops{cost_of(candidates, codec), cost_of(candidates, exchange::default_second_hop(codec, cluster.ranks)),
            cost_of(candidates, inside)};
  if (codec == CodecSpec::exact()) {
    for (exchange::CodecCost* hop : {&hops.first, &hops.second, &hops.intra}) {
      hop->bytes *= dense_bytes(bucket.dtype) / dense_bytes(DType::f32);
    }
  }
  return hops;
}

exchange::Cost bucket_cost(const exchange::Cluster& cluster, const plan::Bucket& bucket, Algorithm algorithm,
                           const Hops& hops) {
  const auto elements = static_cast<double>(bucket.count);
  const exchange::Cost frames = algorithm == Algorithm::hierarchical
                                    ? exchange::hierarchical_cost(cluster, elements, hops.intra, hops.first)
                                    : exchange::two_shot_cost(cluster, elements, hops.first, hops.second);
  if (bucket.codec != CodecSpec::exact()) {
    return frames;
  }
  const exchange::Cost ring = exchange::dense_cost(cluster, elements, dense_bytes(bucket.dtype));
  return ring.total <= frames.total ? ring : frames;
}

double sent_bytes(const exchange::Cluster& cluster, const plan::Bucket& bucket, Algorithm algorithm, const Hops& hops) {
  const auto elements = static_cast<double>(bucket.count);
  const auto others = [](double of) { return (of - 1) / of; };
  if (algorithm == Algorithm::hierarchical && bucket.codec != CodecSpec::exact()) {
    const double local = cluster.ranks_per_node;
    return elements * (others(local) * (hops.intra.bytes + hops.first.bytes) +
                       2 * others(cluster.ranks / local) / local * hops.first.bytes);
  }
  return others(cluster.ranks) * elements * (hops.first.bytes + hops.second.bytes);
}

CodecForecast forecast_one(const ModelFile& model, const exchange::Cluster& cluster, const CodecSpec& codec,
                           Algorithm algorithm, std::span<const Candidate> candidates, bool sealed) {
  Policy policy;
  policy.defaults.codec = codec;
  if (codec == CodecSpec::exact()) {
    policy.small.reset();
  }
  policy.defaults.algorithm = algorithm;
  policy.tiers.ranks_per_node = static_cast<std::uint32_t>(cluster.ranks_per_node);
  const plan::Plan plan = plan::make_plan(policy, model.layers, {.world_size = cluster.ranks, .sealed = sealed});
  const double forward = model.compute_seconds * (1 - model.backward);
  const double total = elements_of(model);
  CodecForecast result{.codec = codec, .algorithm = algorithm, .step = {}};
  std::vector<exchange::BucketCost> buckets;
  double done = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    done += static_cast<double>(bucket.count);
    const Hops hops = hops_of(cluster, bucket, bucket.codec, algorithm, candidates);
    const exchange::Cost cost = bucket_cost(cluster, bucket, algorithm, hops);
    buckets.push_back({forward + (model.compute_seconds - forward) * std::min(1.0, done / total), cost.total});
    result.communication += cost.total;
    result.sent_bytes += sent_bytes(cluster, bucket, algorithm, hops);
  }
  result.step = exchange::step_cost(model.compute_seconds, buckets);
  result.memory = memory_of(plan).session();
  return result;
}

}  // namespace

std::vector<CodecForecast> forecast(const ModelFile& model, const exchange::Cluster& cluster,
                                    std::span<const Candidate> candidates, bool sealed) {
  std::vector<CodecForecast> forecasts;
  for (const Candidate& candidate : candidates) {
    if (candidate.offered) {
      CodecForecast best = forecast_one(model, cluster, candidate.codec, Algorithm::two_shot, candidates, sealed);
      if (cluster.ranks_per_node > 1 && cluster.ranks > cluster.ranks_per_node && candidate.codec.k == 0) {
        const CodecForecast tiered =
            forecast_one(model, cluster, candidate.codec, Algorithm::hierarchical, candidates, sealed);
        best = tiered.step.seconds < best.step.seconds ? tiered : best;
      }
      forecasts.push_back(best);
    }
  }
  return forecasts;
}

std::size_t advise(std::span<const CodecForecast> forecasts, double target) {
  double quickest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < forecasts.size(); ++i) {
    if (!forecasts[i].advisable) {
      continue;
    }
    if (forecasts[i].step.exposed <= target * forecasts[i].step.seconds) {
      return i;
    }
    quickest = std::min(quickest, forecasts[i].step.seconds);
  }
  const auto good = std::find_if(forecasts.begin(), forecasts.end(), [&](const CodecForecast& one) {
    return one.advisable && one.step.seconds <= (1 + kWorthwhile) * quickest;
  });
  return static_cast<std::size_t>(good - forecasts.begin());
}

}  // namespace gradwire::cli
