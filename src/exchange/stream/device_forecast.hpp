// Predicts the all-reduce of one bucket over GPUs, for each way to make it. The stream executor runs over a backend
// that records its kernels, groups and events; NCCL's own sum, and how long one kernel inside a node takes, are
// formulas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/model/device_timeline.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::exchange {

enum class DeviceWay : std::uint8_t {
  nccl,        // its own sum, uncompressed
  four_lanes,  // four chunks a shard, and a launch for each frame: the executor as it was
  one_lane,    // the executor as it is
  tiers,       // NCCL's reduce-scatter inside a node, encoded once between nodes, all-gather of frames inside
  fused,       // one kernel for each lane inside a node, where there is one for the codec; else as one_lane
};

/// An unweighted bucket.
struct DeviceBucket {
  std::uint64_t count = 0;  // elements
  DType dtype = DType::f32;
  CodecSpec codec = {};
  bool feedback = false;  // encoders keep what they drop
  bool several = false;   // it has several tensors: the first way gathers and scatters them, tiers gather them
};

struct DeviceForecast {
  DeviceWay way = DeviceWay::nccl;
  std::uint64_t lanes = 0;  // 0: the way has none
  DeviceTimeline::Counts counts = {};
  double host_seconds = 0;     // until all is enqueued
  double compute_seconds = 0;  // sum over kernels
  double link_seconds = 0;     // sum over groups
  double seconds = 0;          // until the caller's stream goes on
  double nccl_seconds = 0;     // the same bucket by NCCL's own sum
  std::vector<DeviceTimeline::Span> spans = {};

  [[nodiscard]] double ratio() const noexcept { return nccl_seconds / seconds; }
};

/// The ways that the cluster allows: tiers need several nodes of several cards, one kernel needs one node of at most 32
/// cards that reach each other's memory.
[[nodiscard]] std::vector<DeviceWay> device_ways(const DeviceCluster& cluster);

/// Error(unsupported) for a codec that has no values of the dtype, Error(invalid_argument) for a way that the cluster
/// does not allow, and for a bucket without elements or a cluster of one card.
[[nodiscard]] DeviceForecast forecast_device(const DeviceCluster& cluster, DeviceWay way, const DeviceBucket& bucket);

}  // namespace gradwire::exchange
