#include "cli/gpu_plan.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"

namespace gradwire::cli {
namespace {

using exchange::DeviceBucket;
using exchange::DeviceCluster;
using exchange::DeviceForecast;
using exchange::DeviceWay;

constexpr double kMicroseconds = 1e6;

std::string microseconds(double seconds) { return format_number(seconds * kMicroseconds, 3); }
std::string gigabytes(double rate) { return format_number(rate / 1e9, 4) + " GB/s"; }
std::string times(double value) {
  const long long hundredths = std::llround(value * 100);
  const std::string digits = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + (digits.size() < 2 ? ".0" : ".") + digits;
}
std::string link_text(const exchange::LinkCost& of) {
  return gigabytes(of.bytes_per_second) + ", " + microseconds(of.latency_seconds) + " us a group";
}

void print_cluster(const DeviceCluster& cluster, std::ostream& out) {
  const auto counted = [](int count, const char* what) {
    return counted_text(static_cast<std::uint64_t>(count), what);
  };
  out << cluster.name << ": " << counted(cluster.nodes, "node") << " of " << counted(cluster.cards, "card") << ", "
      << counted(cluster.ranks(), "rank") << "\n\nBy a model, not measured. Assumed:\n";
  if (cluster.cards > 1) {
    out << "  inside a node: " << link_text(cluster.inside)
        << "; a kernel writes to other cards: " << (cluster.peer_access ? "yes" : "no") << '\n';
  }
  if (cluster.nodes > 1) {
    out << "  between nodes: " << link_text(cluster.between) << ", for each card\n";
  }
  out << "  NCCL's all-reduce: " << gigabytes(cluster.nccl.bytes_per_second) << " of bus bandwidth, "
      << microseconds(cluster.nccl.latency_seconds) << " us\n  to enqueue: a kernel "
      << microseconds(cluster.host.kernel) << " us, a group of messages " << microseconds(cluster.host.group)
      << " us and " << microseconds(cluster.host.message) << " us a message, an event "
      << microseconds(cluster.host.event) << " us\n  a kernel: at least "
      << microseconds(cluster.card.least_kernel_seconds) << " us, " << microseconds(cluster.card.wave_seconds)
      << " us for each " << format_number(cluster.card.tiles_at_once) << " tiles, and "
      << gigabytes(cluster.card.bytes_per_second) << " read and written\n"
      << "  codec " << gpu_codec().to_string() << " without feedback\n\n";
}

std::vector<std::string> way_row(const std::string& size, const DeviceForecast& one) {
  const bool executor = one.lanes > 0;
  const auto counted = [&](std::uint64_t value) { return executor ? std::to_string(value) : std::string("-"); };
  return {size,
          std::string(name_of(one.way)),
          counted(one.lanes),
          std::to_string(one.counts.kernels),
          counted(one.counts.groups),
          counted(one.counts.events),
          rounded_microseconds(one.host_seconds),
          one.compute_seconds > 0 ? rounded_microseconds(one.compute_seconds) : "-",
          one.link_seconds > 0 ? rounded_microseconds(one.link_seconds) : "-",
          rounded_microseconds(one.seconds),
          rounded_microseconds(one.nccl_seconds),
          times(one.ratio()),
          one.way != DeviceWay::nccl && one.ratio() < 1 ? "loses" : ""};
}

/// The step of a model by one way.
struct WayStep {
  exchange::StepCost cost;
  double communication = 0;  // seconds, the sum over buckets
  double host = 0;           // seconds
  std::uint64_t kernels = 0;
};

WayStep way_step(const DeviceCluster& cluster, const ModelFile& model, const plan::Plan& plan, DeviceWay way) {
  const double forward = model.compute_seconds * (1 - model.backward);
  double total = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    total += static_cast<double>(bucket.count);
  }
  WayStep step;
  std::vector<exchange::BucketCost> buckets;
  double done = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    done += static_cast<double>(bucket.count);
    const DeviceForecast one = forecast_device(
        cluster, way,
        {.count = bucket.count, .dtype = bucket.dtype, .codec = bucket.codec, .several = bucket.parts.size() > 1});
    buckets.push_back({forward + (model.compute_seconds - forward) * std::min(1.0, done / total), one.seconds});
    step.communication += one.seconds;
    step.host += one.host_seconds;
    step.kernels += one.counts.kernels;
  }
  step.cost = exchange::step_cost(model.compute_seconds, buckets);
  return step;
}

}  // namespace

std::string_view name_of(DeviceWay way) {
  switch (way) {
    case DeviceWay::nccl: return "NCCL";
    case DeviceWay::four_lanes: return "four lanes";
    case DeviceWay::one_lane: return "one lane";
    case DeviceWay::tiers: return "tiers";
    case DeviceWay::fused: return "one kernel";
  }
  return "?";
}

CodecSpec gpu_codec() { return CodecSpec::parse("int8"); }

DeviceBucket bucket_of(std::uint64_t bytes) {
  return {.count = std::max<std::uint64_t>(1, bytes / sizeof(float)), .codec = gpu_codec()};
}

std::string counted_text(std::uint64_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}

std::string rounded_microseconds(double seconds) { return std::to_string(std::llround(seconds * kMicroseconds)); }

void print_gpu_table(const DeviceCluster& cluster, std::span<const std::uint64_t> sizes, std::ostream& out) {
  print_cluster(cluster, out);
  std::vector<std::vector<std::string>> rows{{"bucket", "way", "lanes", "kernels", "groups", "events", "host us",
                                              "compute us", "link us", "us", "NCCL us", "ratio", ""}};
  for (const std::uint64_t bytes : sizes) {
    for (const DeviceWay way : device_ways(cluster)) {
      rows.push_back(way_row(format_bytes(bytes), forecast_device(cluster, way, bucket_of(bytes))));
    }
  }
  out << text::table(rows, "llrrrrrrrrrrl")
      << "bucket: one f32 tensor; four lanes: the executor as it was, a launch for each frame; one lane: as it is,\n"
         "counted by running it; tiers: NCCL's sums inside a node, frames between nodes; one kernel: a launch for "
         "each\n"
         "lane inside a node; ratio: of NCCL's time to this one\n";
}

void print_gpu_steps(const DeviceCluster& cluster, const RecordedModel& read, std::ostream& out) {
  Policy policy;
  policy.defaults.codec = gpu_codec();
  const plan::Plan plan = plan::make_plan(policy, read.model.layers, {.world_size = cluster.ranks()});
  print_cluster(cluster, out);
  out << read.source << ": " << read.model.layers.size() << " layers in " << plan.buckets.size()
      << " buckets, which become ready evenly over the backward pass; a step computes "
      << format_number(read.model.compute_seconds * 1e3, 4) << " ms\n"
      << (read.note.empty() ? "" : "  " + read.note + '\n');
  std::vector<std::vector<std::string>> rows{
      {"way", "step ms", "exposed ms", "all buckets ms", "kernels", "host ms", "speed-up"}};
  const auto milliseconds = [](double seconds) { return format_number(seconds * 1e3, 4); };
  double nccl = 0;
  for (const DeviceWay way : device_ways(cluster)) {
    const WayStep step = way_step(cluster, read.model, plan, way);
    nccl = way == DeviceWay::nccl ? step.cost.seconds : nccl;
    rows.push_back({std::string(name_of(way)), milliseconds(step.cost.seconds), milliseconds(step.cost.exposed),
                    milliseconds(step.communication), std::to_string(step.kernels), milliseconds(step.host),
                    times(nccl / step.cost.seconds)});
  }
  out << text::table(rows, "lrrrrrr")
      << "exposed: communication that no computing hides; all buckets: one after the other; host: its time to enqueue\n"
         "them; speed-up: of the step, against NCCL's own sums\n";
}

}  // namespace gradwire::cli
