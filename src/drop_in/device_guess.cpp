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

constexpr double kNcclNodeLatency = 38e-6;  // of its reduce-scatter and all-gather inside a node

exchange::DeviceCluster cluster_of(const Policy& policy, const exchange::Tiers* tiers, int world_size) {
  const int asked = static_cast<int>(policy.tiers.ranks_per_node.value_or(1));
  const int cards = tiers != nullptr ? world_size / tiers->nodes() : asked > 0 && world_size % asked == 0 ? asked : 1;
  const double latency = std::chrono::duration<double>(policy.link->latency).count();
  const double rate = policy.link->bytes_per_second;
  exchange::DeviceCluster cluster{.nodes = world_size / cards, .cards = cards};
  cluster.inside.bytes_per_second = kInsideRate;
  cluster.between = {.latency_seconds = latency, .bytes_per_second = rate / cards};
  cluster.nccl = nccl_link(world_size, latency, cluster.nodes > 1 ? rate : kInsideRate);
  cluster.nccl_inside = {.latency_seconds = kNcclNodeLatency, .bytes_per_second = kInsideRate};
  return cluster;
}

// The node in which all ranks are, as their windows have shown.
exchange::DeviceCluster node_of(int world_size) {
  exchange::DeviceCluster node{.nodes = 1, .cards = world_size};
  node.inside.bytes_per_second = kInsideRate;
  node.nccl = nccl_link(world_size, kNcclInsideLatency, kNcclInsideRate);
  return node;
}

exchange::DeviceWay forecast_way(DeviceMethod method) {
  switch (method) {
    case DeviceMethod::messages: return exchange::DeviceWay::one_lane;
    case DeviceMethod::node_kernel: return exchange::DeviceWay::fused;
    case DeviceMethod::tiers: return exchange::DeviceWay::tiers;
  }
  return exchange::DeviceWay::one_lane;
}

// Returns the time of a call of `count` elements over that of NCCL's own call.
double guess(const exchange::DeviceCluster& cluster, const DeviceWay& way, DType dtype, std::uint64_t count) {
  const exchange::DeviceForecast forecast = exchange::forecast_device(cluster, forecast_way(way.method),
                                                                      {.count = std::max<std::uint64_t>(1, count),
                                                                       .dtype = dtype,
                                                                       .codec = way.stage.codec,
                                                                       .feedback = way.stage.error_feedback});
  return forecast.seconds / forecast.nccl_seconds;
}

}  // namespace

std::vector<DeviceWay> device_ways(const plan::CallPlan& plan, DType dtype, const DeviceOffers& offers) {
  std::vector<DeviceWay> ways;
  for (const policy::Stage& stage : plan.ways) {
    ways.push_back({.stage = stage});
  }
  if (!offers.node_kernel && offers.tiers == nullptr) {
    return ways;
  }
  for (const policy::Stage& stage : plan.ways) {
    if (exchange::has_window_kernel({stage.codec, dtype}, {stage.second_hop, dtype})) {
      ways.push_back({.stage = stage, .method = DeviceMethod::node_kernel, .offered = offers.node_kernel});
    }
  }
  for (const policy::Stage& stage : plan.ways) {
    if (offers.tiers != nullptr && !stage.error_feedback && stage.codec.k == 0) {
      ways.push_back({.stage = stage, .method = DeviceMethod::tiers});
      ways.back().stage.intra = offers.intra;
    }
  }
  return ways;
}

std::vector<double> guess_ways(const Policy& policy, std::span<const DeviceWay> ways, const DeviceOffers& offers,
                               const ChoiceClass& what, std::uint64_t bytes, int world_size) {
  if (world_size < 2) {
    return {};
  }
  const bool knows_link = policy.link && policy.link->bytes_per_second > 0;
  const std::uint64_t count = bytes / element_bytes(what.dtype);
  std::vector<double> ratios{1.0};
  for (const DeviceWay& way : ways) {
    if (!way.offered) {
      ratios.push_back(INFINITY);
    } else if (way.method == DeviceMethod::node_kernel) {
      ratios.push_back(guess(node_of(world_size), way, what.dtype, count));
    } else {
      ratios.push_back(knows_link ? guess(cluster_of(policy, offers.tiers.get(), world_size), way, what.dtype, count)
                                  : 1.0);
    }
  }
  return ratios;
}

}  // namespace gradwire::drop_in
