#include "drop_in/device_guess.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "exchange/stream/device_forecast.hpp"

namespace gradwire::drop_in {
namespace {

constexpr double kInsideRate = 340e9;  // NVLink's, in bytes a second

exchange::DeviceCluster cluster_of(const Policy& policy, int world_size) {
  const int asked = static_cast<int>(policy.tiers.ranks_per_node.value_or(1));
  const int cards = asked > 0 && world_size % asked == 0 ? asked : 1;
  const double latency = std::chrono::duration<double>(policy.link->latency).count();
  const double rate = policy.link->bytes_per_second;
  exchange::DeviceCluster cluster{.nodes = world_size / cards, .cards = cards};
  cluster.inside.bytes_per_second = kInsideRate;
  cluster.between = {.latency_seconds = latency, .bytes_per_second = rate / cards};
  cluster.nccl = {.latency_seconds = 2 * std::ceil(std::log2(world_size)) * latency,
                  .bytes_per_second = cluster.nodes > 1 ? rate : kInsideRate};
  return cluster;
}

}  // namespace

std::vector<double> guess_ways(const Policy& policy, const plan::CallPlan& plan, const ChoiceClass& what,
                               std::uint64_t bytes, int world_size) {
  if (!policy.link || policy.link->bytes_per_second <= 0 || world_size < 2) {
    return {};
  }
  const exchange::DeviceCluster cluster = cluster_of(policy, world_size);
  std::vector<double> ratios{1.0};
  for (const policy::Stage& stage : plan.ways) {
    const exchange::DeviceForecast forecast =
        exchange::forecast_device(cluster, exchange::DeviceWay::one_lane,
                                  {.count = std::max<std::uint64_t>(1, bytes / element_bytes(what.dtype)),
                                   .dtype = what.dtype,
                                   .codec = stage.codec,
                                   .feedback = stage.error_feedback});
    ratios.push_back(forecast.seconds / forecast.nccl_seconds);
  }
  return ratios;
}

}  // namespace gradwire::drop_in
