#include "exchange/stream/device_forecast.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "exchange/default_codecs.hpp"
#include "exchange/stream/dry_run.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "exchange/stream/window_calls.hpp"
#include "gradwire/error.hpp"
#include "kernels/device/frame_series.hpp"

namespace gradwire::exchange {
namespace {

using Row = DeviceTimeline::Queue;

// Returns the chunk sizes of the executor until 2026-11-29: at least four chunks a shard, and at most 32 MiB for the
// frames of all ranks in a lane.
ChunkSize chunks_before(int ranks) {
  constexpr std::uint64_t kLaneBytes = 32ULL << 20, kLeast = 256ULL << 10, kMost = 4ULL << 20;
  return std::clamp(kLaneBytes / static_cast<std::uint64_t>(ranks), kLeast, kMost);
}

constexpr double kResidualBytes = 2 * sizeof(float);  // read and written

double payload_of(const kernels::FrameCodec& frames, std::uint64_t count) {
  const codec::Codec codec(CodecSpec(frames.id, frames.k), frames.dtype);
  return static_cast<double>(codec.payload_bytes(count));
}

double array_bytes(DType dtype, std::uint64_t count) { return static_cast<double>(count * element_bytes(dtype)); }

double tiles_in(std::uint64_t count) {
  const std::uint64_t tiles = (count + codec::kTileElements - 1) / codec::kTileElements;
  return static_cast<double>(tiles);
}

/// Enters what an executor enqueues into a timeline. A bucket of DeviceBucket's kind needs no operation but these.
class TimelineBackend final : public NullBackend {
 public:
  TimelineBackend(memory::Arena& arena, const DeviceCluster& cluster, DeviceTimeline& timeline, bool each_frame)
      : NullBackend(arena, 0, cluster.ranks()),
        cluster_(cluster),
        cards_(cluster.cards),
        timeline_(timeline),
        each_frame_(each_frame) {}

  [[nodiscard]] Event record(Queue queue) override {
    moments_.push_back(timeline_.record(row(queue)));
    return static_cast<Event>(moments_.size() - 1);
  }
  void wait(Queue queue, Event event) override { timeline_.wait(row(queue), moments_.at(event)); }

  void open_headers(std::span<const kernels::HeaderJob> /*jobs*/) override {
    if (!each_frame_) {
      open_header();
    }
  }
  void encode(const kernels::EncodeJob& job) override {
    for_each_launch(job, [&](std::uint64_t count) {
      open_frame(!job.opened);
      return array_bytes(job.values_dtype, count) +
             (job.residual != nullptr ? kResidualBytes * static_cast<double>(count) : 0.0);
    });
  }
  void decode(const kernels::DecodeJob& job) override {
    for_each_launch(job, [&](std::uint64_t count) { return array_bytes(job.values_dtype, count); });
  }
  void reduce(const kernels::ReduceJob& job) override {
    open_frame(job.out != nullptr && !job.opened);
    const bool uncoded = job.own != nullptr;
    double bytes = (job.ranks - (uncoded ? 1 : 0)) * payload_of(job.call.codec, job.count);
    bytes += uncoded ? array_bytes(job.own_dtype, job.count) : 0.0;
    bytes += job.out != nullptr ? payload_of(job.second, job.count) : array_bytes(job.result_dtype, job.count);
    for (const float* residual : {job.own_residual, job.owner_residual}) {
      bytes += residual != nullptr ? kResidualBytes * job.count : 0.0;
    }
    timeline_.kernel(tiles_in(job.count), bytes);
  }
  // The formula's start has an ordinary host's launch in it, which the timeline adds.
  void all_reduce_windows(const kernels::WindowJob& job) override {
    const kernels::EncodeJob& encode = job.encode;
    double frames = 0;
    double elements = 0;
    for (std::uint32_t number = 0; number < encode.series.frames; ++number) {
      const std::uint64_t count = kernels::frame_of_series(encode.frame, encode.series, number).place.count;
      frames += payload_of(encode.call.codec, count);
      elements += static_cast<double>(count);
    }
    const double residuals =
        (encode.residual != nullptr ? elements : 0) + (job.reduce.owner_residual != nullptr ? elements / cards_ : 0);
    timeline_.kernel_of(fused_seconds(cluster_, frames) - EnqueueCost{}.kernel +
                        residuals * kResidualBytes / cluster_.card.bytes_per_second);
  }

  void begin_group() override { sends_ = receives_ = inside_ = between_ = 0; }
  void send(std::span<const std::byte> bytes, int peer) override {
    ++sends_;
    (peer / cards_ == rank() / cards_ ? inside_ : between_) += bytes.size();
  }
  void receive(std::span<std::byte> /*bytes*/, int /*peer*/) override { ++receives_; }
  void sum_in_node(const void* /*from*/, void* /*to*/, DType dtype, std::uint64_t each,
                   std::uint64_t /*rest*/) override {
    node_bytes_ = (cards_ - 1) * array_bytes(dtype, each);
  }
  void gather_in_node(void* /*all*/, std::uint64_t bytes) override {
    node_bytes_ = (cards_ - 1) * static_cast<double>(bytes);
  }
  void end_group() override {
    if (node_bytes_ > 0) {
      timeline_.collective_inside(std::exchange(node_bytes_, 0.0));
    } else {
      timeline_.group(sends_, receives_, static_cast<double>(inside_), static_cast<double>(between_));
    }
  }

 private:
  static Row row(Queue queue) noexcept {
    return queue == Queue::compute ? Row::compute : queue == Queue::node ? Row::node : Row::messages;
  }

  void open_header() { timeline_.kernel(0, 0); }
  // The executor of that time launched one header kernel for each encoder and each sum.
  void open_frame(bool closed) {
    if (closed || each_frame_) {
      open_header();
    }
  }

  template <class Job, class Bytes>
  void for_each_launch(const Job& job, const Bytes& bytes) {
    double tiles = 0;
    double moved = 0;
    std::uint64_t all = 0;
    for (std::uint32_t number = 0; number < job.series.frames; ++number) {
      const std::uint64_t count = kernels::frame_of_series(job.frame, job.series, number).place.count;
      if (each_frame_) {
        const double others = bytes(count);
        timeline_.kernel(tiles_in(count), others + payload_of(job.call.codec, count));
      }
      tiles += tiles_in(count);
      moved += payload_of(job.call.codec, count);
      all += count;
    }
    if (!each_frame_) {
      const double others = bytes(all);
      timeline_.kernel(tiles, others + moved);
    }
  }

  const DeviceCluster& cluster_;
  int cards_;
  DeviceTimeline& timeline_;
  bool each_frame_;
  std::vector<double> moments_;  // of events
  std::uint64_t sends_ = 0, receives_ = 0, inside_ = 0, between_ = 0;
  double node_bytes_ = 0;  // that NCCL's sum or gather inside the node sends, in the group that is open
};

/// Windows of a node for which nothing is launched.
class ForecastWindows final : public memory::PeerWindows {
 public:
  [[nodiscard]] std::byte* window(int /*rank*/) const noexcept override { return nullptr; }
  void leak() noexcept override {}
};

// A step follows the caller's stream, and leads it at its end, behind two kernels of its own. A bucket in windows is
// enqueued whole before the step ends, so that an event of its own marks its end.
template <class Body>
void step(DeviceTimeline& timeline, DeviceWay way, const DeviceBucket& bucket, const Body& body) {
  const bool before = way == DeviceWay::four_lanes;  // kernels now read and write tensors where they lie
  const auto copy = [&](bool copies) {
    if (bucket.several && copies) {
      timeline.kernel(0, 2 * array_bytes(bucket.dtype, bucket.count));
    }
  };
  timeline.event();
  timeline.event();
  copy(before || way == DeviceWay::tiers);  // a library reads one array
  body();
  copy(before);
  if (way == DeviceWay::fused && timeline.counts().groups == 0) {
    timeline.event();
  }
  timeline.kernel(0, 0);  // advance_step
  timeline.kernel(0, 0);  // count_nonfinite
  timeline.event();
  timeline.event();
}

std::uint64_t run_executor(const DeviceCluster& cluster, DeviceWay way, const DeviceBucket& bucket,
                           DeviceTimeline& timeline) {
  const bool before = way == DeviceWay::four_lanes;
  const bool tiers = way == DeviceWay::tiers;
  NoMemory source;
  memory::Arena arena(source);
  TimelineBackend backend(arena, cluster, timeline, before);
  const auto nodes =
      tiers ? std::make_shared<const Tiers>(Tiers::in_rows(static_cast<std::uint32_t>(cluster.cards), cluster.ranks()))
            : nullptr;
  Resolved resolved = resolve({.algorithm = tiers ? Algorithm::hierarchical : Algorithm::two_shot,
                               .codec = bucket.codec,
                               .second_hop = default_second_hop(bucket.codec, tiers ? cluster.nodes : cluster.ranks()),
                               .intra = CodecSpec::exact(),
                               .dtype = bucket.dtype,
                               .count = bucket.count,
                               .feedback = bucket.feedback,
                               .chunk_bytes = before ? chunks_before(cluster.ranks()) : stream_chunks(cluster.ranks()),
                               .native = {.in_nodes = tiers}},
                              {0, cluster.ranks(), nodes});
  const std::uint64_t lanes = resolved.schedule.lanes;
  const auto memory = [&](std::size_t element) { return source.allocate(bucket.count * element); };
  const auto residual = [&] { return bucket.feedback ? reinterpret_cast<float*>(memory(sizeof(float))) : nullptr; };
  const std::size_t element = element_bytes(bucket.dtype);
  const ResidualUse::Range owned = resolved.call.residuals.owned;
  const std::uint64_t held = bucket.feedback && !tiers ? bucket.count : 0;
  kernels::WindowWords words;
  const WindowCalls windows(std::make_unique<ForecastWindows>(),
                            {.ranks = std::min(static_cast<std::uint32_t>(cluster.cards), kernels::kMostWindowRanks),
                             .blocks = kernels::kMostWindowBlocks,
                             .slot_bytes = kWindowSlotBytes},
                            words, {});
  StreamExecutor executor(backend);
  executor.use_windows(way == DeviceWay::fused ? &windows : nullptr);
  executor.run(std::move(resolved.schedule),
               {.input = {memory(element), 0, bucket.count},
                .output = {memory(element), 0, bucket.count},
                .count = bucket.count,
                .dtype = bucket.dtype,
                .call = std::move(resolved.call),
                .step = reinterpret_cast<const std::uint32_t*>(memory(1)),
                .status = reinterpret_cast<kernels::DeviceStatus*>(memory(1)),
                .local_residual = {tiers ? nullptr : residual(), 0, held},
                .owner_residual = {tiers ? nullptr : residual(), owned.first, tiers ? 0 : owned.count},
                .node_residual = tiers ? residual() : nullptr,
                .in_windows = true,
                .name = "forecast"});
  return lanes;
}

DeviceForecast forecast_of(const DeviceTimeline& timeline) {
  return {.counts = timeline.counts(),
          .host_seconds = timeline.busy_seconds(Row::host),
          .compute_seconds = timeline.busy_seconds(Row::compute),
          .link_seconds = timeline.busy_seconds(Row::messages) + timeline.busy_seconds(Row::node),
          .seconds = timeline.seconds(),
          .spans = timeline.spans()};
}

DeviceForecast forecast_executor(const DeviceCluster& cluster, DeviceWay way, const DeviceBucket& bucket) {
  DeviceTimeline timeline(cluster);
  std::uint64_t lanes = 0;
  step(timeline, way, bucket, [&] { lanes = run_executor(cluster, way, bucket, timeline); });
  DeviceForecast forecast = forecast_of(timeline);
  forecast.lanes = lanes;
  return forecast;
}

DeviceForecast forecast_nccl(const DeviceCluster& cluster, double seconds) {
  using Kind = DeviceTimeline::Kind;
  const double enqueued = cluster.host.group;
  return {.counts = {.kernels = 1},
          .host_seconds = enqueued,
          .link_seconds = seconds - enqueued,
          .seconds = seconds,
          .spans = {{Row::host, Kind::group, 0, enqueued}, {Row::messages, Kind::group, enqueued, seconds}}};
}

}  // namespace

std::vector<DeviceWay> device_ways(const DeviceCluster& cluster) {
  std::vector<DeviceWay> ways{DeviceWay::nccl, DeviceWay::four_lanes, DeviceWay::one_lane};
  if (cluster.nodes > 1 && cluster.cards > 1) {
    ways.push_back(DeviceWay::tiers);
  }
  if (cluster.nodes == 1 && cluster.peer_access && cluster.cards <= static_cast<int>(kernels::kMostWindowRanks)) {
    ways.push_back(DeviceWay::fused);
  }
  return ways;
}

DeviceForecast forecast_device(const DeviceCluster& cluster, DeviceWay way, const DeviceBucket& bucket) {
  const std::vector<DeviceWay> ways = device_ways(cluster);
  if (cluster.ranks() < 2 || bucket.count == 0 || std::find(ways.begin(), ways.end(), way) == ways.end()) {
    throw Error(ErrorCode::invalid_argument, "forecast of " + std::to_string(bucket.count) + " elements over " +
                                                 std::to_string(cluster.nodes) + " nodes of " +
                                                 std::to_string(cluster.cards) +
                                                 " cards: there is nothing to exchange, or the way needs other nodes");
  }
  const double nccl = nccl_seconds(cluster, array_bytes(bucket.dtype, bucket.count));
  DeviceForecast forecast;
  switch (way) {
    case DeviceWay::nccl: forecast = forecast_nccl(cluster, nccl); break;
    case DeviceWay::four_lanes:
    case DeviceWay::one_lane:
    case DeviceWay::tiers:
    case DeviceWay::fused: forecast = forecast_executor(cluster, way, bucket); break;
  }
  forecast.way = way;
  forecast.nccl_seconds = nccl;
  return forecast;
}

}  // namespace gradwire::exchange
