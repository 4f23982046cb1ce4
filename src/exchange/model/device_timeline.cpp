#include "exchange/model/device_timeline.hpp"

#include <algorithm>
#include <cmath>

namespace gradwire::exchange {

double nccl_seconds(const DeviceCluster& cluster, double bytes) noexcept {
  const double ranks = cluster.ranks();
  return cluster.host.group + cluster.nccl.latency_seconds +
         2 * (ranks - 1) / ranks * bytes / cluster.nccl.bytes_per_second;
}

double fused_seconds(const DeviceCluster& cluster, double frame_bytes) noexcept {
  const double cards = cluster.cards;
  return cluster.fused.start_seconds + frame_bytes / cluster.fused.frame_bytes_per_second +
         2 * (cards - 1) / cards * frame_bytes / (cluster.fused.link_share * cluster.inside.bytes_per_second);
}

void DeviceTimeline::enqueue(Kind kind, double seconds) {
  double& host = end_of(Queue::host);
  spans_.push_back({Queue::host, kind, host, host + seconds});
  host += seconds;
  busy_[static_cast<std::size_t>(Queue::host)] += seconds;
}

void DeviceTimeline::run(Queue queue, Kind kind, double seconds) {
  double& end = end_of(queue);
  const double begin = std::max(end, end_of(Queue::host));
  end = begin + seconds;
  spans_.push_back({queue, kind, begin, end});
  busy_[static_cast<std::size_t>(queue)] += seconds;
}

void DeviceTimeline::kernel(double tiles, double bytes) {
  const CardCost& card = cluster_.card;
  kernel_of(std::max({card.least_kernel_seconds, bytes / card.bytes_per_second,
                      std::ceil(tiles / card.tiles_at_once) * card.wave_seconds}));
}

void DeviceTimeline::kernel_of(double seconds) {
  ++counts_.kernels;
  enqueue(Kind::kernel, cluster_.host.kernel);
  run(Queue::compute, Kind::kernel, seconds);
}

void DeviceTimeline::group(std::uint64_t sends, std::uint64_t receives, double inside_bytes, double between_bytes) {
  ++counts_.groups;
  counts_.sends += sends;
  enqueue(Kind::group, cluster_.host.group + static_cast<double>(sends + receives) * cluster_.host.message);
  const double latency = std::max(inside_bytes > 0 ? cluster_.inside.latency_seconds : 0,
                                  between_bytes > 0 ? cluster_.between.latency_seconds : 0);
  run(Queue::messages, Kind::group,
      latency +
          std::max(inside_bytes / cluster_.inside.bytes_per_second, between_bytes / cluster_.between.bytes_per_second));
}

void DeviceTimeline::collective_inside(double bytes) {
  ++counts_.groups;
  enqueue(Kind::group, cluster_.host.group);
  run(Queue::node, Kind::group, cluster_.nccl_inside.latency_seconds + bytes / cluster_.nccl_inside.bytes_per_second);
}

double DeviceTimeline::record(Queue queue) {
  event();
  return std::max(end_of(queue), end_of(Queue::host));
}

void DeviceTimeline::wait(Queue queue, double moment) {
  event();
  end_of(queue) = std::max(end_of(queue), moment);
}

void DeviceTimeline::event() {
  ++counts_.events;
  enqueue(Kind::event, cluster_.host.event);
}

double DeviceTimeline::seconds() const noexcept { return *std::max_element(ends_.begin(), ends_.end()); }

}  // namespace gradwire::exchange
