#include "drop_in/device_guess.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "exchange/stream/device_forecast.hpp"
#include "exchange/stream/window_calls.hpp"

namespace gradwire::drop_in {
namespace {

constexpr double kInsideRate = 340e9;  // NVLink's, in bytes a second
// NCCL's own sum over NVLink, as docs/explanation/device-collectives.md has it for 8 cards.
constexpr double kNcclInsideRate = 392e9;
constexpr double kNcclInsideLatency = 7.5e-6;  // of one of its steps

exchange::LinkCost nccl_link(int world_size, double latency, double rate) {
  return {.latency_seconds = 2 * std::ceil(std::log2(world_size)) * latency, .bytes_per_second = rate};
}

exchange::DeviceCluster cluster_of(const Policy& policy, int world_size) {
  const int asked = static_cast<int>(policy.tiers.ranks_per_node.value_or(1));
  const int cards = asked > 0 && world_size % asked == 0 ? asked : 1;
  const double latency = std::chrono::duration<double>(policy.link->latency).count();
  const double rate = policy.link->bytes_per_second;
  exchange::DeviceCluster cluster{.nodes = world_size / cards, .cards = cards};
  cluster.inside.bytes_per_second = kInsideRate;
  cluster.between = {.latency_seconds = latency, .bytes_per_second = rate / cards};
  cluster.nccl = nccl_link(world_size, latency, cluster.nodes > 1 ? rate : kInsideRate);
  return cluster;
}

// The node in which all ranks are, as their windows have shown.
exchange::DeviceCluster node_of(int world_size) {
  exchange::DeviceCluster node{.nodes = 1, .cards = world_size};
  node.inside.bytes_per_second = kInsideRate;
  node.nccl = nccl_link(world_size, kNcclInsideLatency, kNcclInsideRate);
  return node;
}

// Returns the time of a call of `count` elements over that of NCCL's own call.
double guess(const exchange::DeviceCluster& cluster, const DeviceWay& way, DType dtype, std::uint64_t count) {
  const exchange::DeviceForecast forecast =
      exchange::forecast_device(cluster, way.node_kernel ? exchange::DeviceWay::fused : exchange::DeviceWay::one_lane,
                                {.count = std::max<std::uint64_t>(1, count),
                                 .dtype = dtype,
                                 .codec = way.stage.codec,
                                 .feedback = way.stage.error_feedback});
  return forecast.seconds / forecast.nccl_seconds;
}

}  // namespace

std::vector<DeviceWay> device_ways(const plan::CallPlan& plan, DType dtype, bool node_kernel) {
  std::vector<DeviceWay> ways;
  for (const policy::Stage& stage : plan.ways) {
    ways.push_back({.stage = stage, .node_kernel = false});
  }
  for (const policy::Stage& stage : plan.ways) {
    if (node_kernel && exchange::has_window_kernel({stage.codec, dtype}, {stage.second_hop, dtype})) {
      ways.push_back({.stage = stage, .node_kernel = true});
    }
  }
  return ways;
}

std::vector<double> guess_ways(const Policy& policy, std::span<const DeviceWay> ways, const ChoiceClass& what,
                               std::uint64_t bytes, int world_size) {
  const bool knows_link = policy.link && policy.link->bytes_per_second > 0;
  const bool in_node = std::any_of(ways.begin(), ways.end(), [](const DeviceWay& way) { return way.node_kernel; });
  if ((!knows_link && !in_node) || world_size < 2) {
    return {};
  }
  const std::uint64_t count = bytes / element_bytes(what.dtype);
  std::vector<double> ratios{1.0};
  for (const DeviceWay& way : ways) {
    ratios.push_back(way.node_kernel ? guess(node_of(world_size), way, what.dtype, count)
                     : knows_link    ? guess(cluster_of(policy, world_size), way, what.dtype, count)
                                     : 1.0);
  }
  return ratios;
}

}  // namespace gradwire::drop_in
