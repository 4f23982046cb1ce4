#include "plan/forecast.hpp"

#include <algorithm>
#include <limits>

#include "gradwire/error.hpp"
#include "plan/plan.hpp"
#include "plan/stage.hpp"

namespace gradwire::plan {
namespace {

constexpr double kWorthwhile = 0.05;  // quality is not given up for less

const CodecCost& cost_of(std::span<const Candidate> candidates, const CodecSpec& codec) {
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

// 16-bit tensors as they are, others as f32.
double dense_bytes(DType dtype) { return static_cast<double>(element_bytes(dtype)); }

Cost bucket_cost(const Cluster& cluster, const Bucket& bucket, const CodecSpec& codec,
                 std::span<const Candidate> candidates) {
  const auto elements = static_cast<double>(bucket.count);
  CodecCost cost = cost_of(candidates, codec);
  if (codec == CodecSpec::parse("exact")) {
    cost.bytes *= dense_bytes(bucket.dtype) / dense_bytes(DType::f32);
    const Cost ring = dense_cost(cluster, elements, dense_bytes(bucket.dtype));
    const Cost frames = two_shot_cost(cluster, elements, cost, cost);
    return ring.total <= frames.total ? ring : frames;
  }
  return two_shot_cost(cluster, elements, cost, cost_of(candidates, default_second_hop(codec, cluster.ranks)));
}

Forecast forecast_one(const ModelFile& model, const Cluster& cluster, const CodecSpec& codec,
                      std::span<const Candidate> candidates) {
  Policy policy;
  policy.defaults.codec = codec;
  if (codec == CodecSpec::parse("exact")) {
    policy.small.reset();
  }
  const Plan plan = make_plan(policy, model.layers, {.world_size = cluster.ranks});
  const double forward = model.compute_seconds * (1 - model.backward);
  const double total = elements_of(model);
  Forecast result{.codec = codec, .step = {}};
  std::vector<BucketCost> buckets;
  double done = 0;
  for (const Bucket& bucket : plan.buckets) {
    done += static_cast<double>(bucket.count);
    const Cost cost = bucket_cost(cluster, bucket, bucket.codec, candidates);
    buckets.push_back({forward + (model.compute_seconds - forward) * std::min(1.0, done / total), cost.total});
    result.communication += cost.total;
    const bool exact = bucket.codec == CodecSpec::parse("exact");
    const double bytes = exact ? 2 * dense_bytes(bucket.dtype)
                               : cost_of(candidates, bucket.codec).bytes +
                                     cost_of(candidates, default_second_hop(bucket.codec, cluster.ranks)).bytes;
    result.sent_bytes +=
        static_cast<double>(cluster.ranks - 1) / cluster.ranks * static_cast<double>(bucket.count) * bytes;
  }
  result.step = step_cost(model.compute_seconds, buckets);
  return result;
}

}  // namespace

std::vector<Forecast> forecast(const ModelFile& model, const Cluster& cluster, std::span<const Candidate> candidates) {
  std::vector<Forecast> forecasts;
  for (const Candidate& candidate : candidates) {
    if (candidate.offered) {
      forecasts.push_back(forecast_one(model, cluster, candidate.codec, candidates));
    }
  }
  return forecasts;
}

std::size_t advise(std::span<const Forecast> forecasts, double target) {
  double quickest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < forecasts.size(); ++i) {
    if (forecasts[i].step.exposed <= target * forecasts[i].step.seconds) {
      return i;
    }
    quickest = std::min(quickest, forecasts[i].step.seconds);
  }
  const auto good = std::find_if(forecasts.begin(), forecasts.end(),
                                 [&](const Forecast& one) { return one.step.seconds <= (1 + kWorthwhile) * quickest; });
  return static_cast<std::size_t>(good - forecasts.begin());
}

}  // namespace gradwire::plan
