#include "exchange/stream/device_forecast.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "exchange/default_codecs.hpp"
#include "exchange/stream/dry_run.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "gradwire/error.hpp"
#include "kernels/device/frame_series.hpp"

namespace gradwire::exchange {
namespace {

using Row = DeviceTimeline::Queue;

constexpr std::uint64_t kTierLanes = 4;

// The chunks of the executor as it was: at least four of a shard, and in memory 32 MiB of all ranks.
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
      : NullBackend(arena, 0, cluster.ranks()), cards_(cluster.cards), timeline_(timeline), each_frame_(each_frame) {}

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

  void begin_group() override { sends_ = receives_ = inside_ = between_ = 0; }
  void send(std::span<const std::byte> bytes, int peer) override {
    ++sends_;
    (peer / cards_ == rank() / cards_ ? inside_ : between_) += bytes.size();
  }
  void receive(std::span<std::byte> /*bytes*/, int /*peer*/) override { ++receives_; }
  void end_group() override {
    timeline_.group(sends_, receives_, static_cast<double>(inside_), static_cast<double>(between_));
  }

 private:
  static Row row(Queue queue) noexcept { return queue == Queue::compute ? Row::compute : Row::messages; }

  void open_header() { timeline_.kernel(0, 0); }
  // Before there were launches for several headers, each encoder and each sum began with its own.
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

  int cards_;
  DeviceTimeline& timeline_;
  bool each_frame_;
  std::vector<double> moments_;  // of events
  std::uint64_t sends_ = 0, receives_ = 0, inside_ = 0, between_ = 0;
};

// A step follows the caller's stream, and leads it at its end, behind two kernels of its own.
template <class Body>
void step(DeviceTimeline& timeline, const DeviceBucket& bucket, const Body& body) {
  const auto copy = [&] {
    if (bucket.gathered) {
      timeline.kernel(0, 2 * array_bytes(bucket.dtype, bucket.count));
    }
  };
  timeline.event();
  timeline.event();
  copy();
  body();
  copy();
  timeline.kernel(0, 0);  // advance_step
  timeline.kernel(0, 0);  // count_nonfinite
  timeline.event();
  timeline.event();
}

std::uint64_t run_executor(const DeviceCluster& cluster, const DeviceBucket& bucket, bool each_frame,
                           DeviceTimeline& timeline) {
  NoMemory source;
  memory::Arena arena(source);
  TimelineBackend backend(arena, cluster, timeline, each_frame);
  Resolved resolved =
      resolve({.codec = bucket.codec,
               .second_hop = default_second_hop(bucket.codec, cluster.ranks()),
               .dtype = bucket.dtype,
               .count = bucket.count,
               .feedback = bucket.feedback,
               .chunk_bytes = each_frame ? chunks_before(cluster.ranks()) : stream_chunks(cluster.ranks())},
              {0, cluster.ranks()});
  const std::uint64_t lanes = resolved.schedule.lanes;
  const auto memory = [&](std::size_t element) { return source.allocate(bucket.count * element); };
  const std::size_t element = element_bytes(bucket.dtype);
  auto* residual = bucket.feedback ? reinterpret_cast<float*>(memory(sizeof(float))) : nullptr;
  auto* owned = bucket.feedback ? reinterpret_cast<float*>(memory(sizeof(float))) : nullptr;
  const std::uint64_t held = bucket.feedback ? bucket.count : 0;
  const ResidualUse::Range range = resolved.call.residuals.owned;
  StreamExecutor executor(backend);
  executor.run(std::move(resolved.schedule), {.input = {memory(element), 0, bucket.count},
                                              .output = {memory(element), 0, bucket.count},
                                              .count = bucket.count,
                                              .dtype = bucket.dtype,
                                              .call = std::move(resolved.call),
                                              .step = reinterpret_cast<const std::uint32_t*>(memory(1)),
                                              .status = reinterpret_cast<kernels::DeviceStatus*>(memory(1)),
                                              .local_residual = {residual, 0, held},
                                              .owner_residual = {owned, range.first, range.count},
                                              .name = "forecast"});
  return lanes;
}

/// The tiers, stage by stage; lane l is in stage t - l in turn t, so that both links and the card work beside each
/// other.
class TierStages {
 public:
  TierStages(const DeviceCluster& cluster, const DeviceBucket& bucket, std::uint64_t lanes, DeviceTimeline& timeline)
      : timeline_(timeline),
        codec_(bucket.codec, bucket.dtype),
        dtype_(bucket.dtype),
        feedback_(bucket.feedback),
        cards_(static_cast<std::uint64_t>(cluster.cards)),
        nodes_(static_cast<std::uint64_t>(cluster.nodes)),
        count_(bucket.count / lanes),
        moments_(lanes) {}

  void run() {
    constexpr std::uint64_t kStages = 5;
    for (std::uint64_t turn = 0; turn < moments_.size() + kStages - 1; ++turn) {
      for (std::uint64_t lane = 0; lane < moments_.size(); ++lane) {
        if (turn >= lane && turn - lane < kStages) {
          stage(turn - lane, moments_[lane]);
        }
      }
    }
  }

 private:
  // `moment`: when the lane's previous stage has run.
  void stage(std::uint64_t number, double& moment) {
    const std::uint64_t node_sum = count_ / cards_;  // elements that this card sums over its node
    const std::uint64_t shard = node_sum / nodes_;   // elements that it sums over all nodes
    const auto others = static_cast<double>(cards_ - 1);
    const auto peers = static_cast<double>(nodes_ - 1);
    switch (number) {
      case 0: inside(moment, others * array_bytes(dtype_, node_sum)); break;
      case 1:
        timeline_.wait(Row::compute, moment);
        timeline_.kernel(0, 0);
        kernel(shard * (nodes_ - 1), array_bytes(dtype_, shard * (nodes_ - 1)) + frames(shard) * peers);
        exchange(moment, shard);
        break;
      case 2:
        timeline_.wait(Row::compute, moment);
        kernel(shard, array_bytes(dtype_, shard) + frames(shard) * (peers + 1));
        exchange(moment, shard);
        break;
      case 3: inside(moment, others * frames(node_sum)); break;
      default:
        timeline_.wait(Row::compute, moment);
        timeline_.kernel(tiles_in(count_), frames(count_) + array_bytes(dtype_, count_));
    }
  }

  double frames(std::uint64_t count) const { return static_cast<double>(codec_.payload_bytes(count)); }
  void kernel(std::uint64_t count, double bytes) {
    timeline_.kernel(tiles_in(count), bytes + (feedback_ ? kResidualBytes * static_cast<double>(count) : 0));
  }
  void inside(double& moment, double bytes) {
    if (moment > 0) {
      timeline_.wait(Row::inside, moment);
    }
    timeline_.collective_inside(bytes);
    moment = timeline_.record(Row::inside);
  }
  void exchange(double& moment, std::uint64_t shard) {
    timeline_.wait(Row::messages, timeline_.record(Row::compute));
    timeline_.group(nodes_ - 1, nodes_ - 1, 0, frames(shard) * static_cast<double>(nodes_ - 1));
    moment = timeline_.record(Row::messages);
  }

  DeviceTimeline& timeline_;
  codec::Codec codec_;
  DType dtype_;
  bool feedback_;
  std::uint64_t cards_, nodes_, count_;
  std::vector<double> moments_;  // of each lane
};

DeviceForecast forecast_of(DeviceWay way, std::uint64_t lanes, const DeviceTimeline& timeline) {
  return {.way = way,
          .lanes = lanes,
          .counts = timeline.counts(),
          .host_seconds = timeline.busy_seconds(Row::host),
          .compute_seconds = timeline.busy_seconds(Row::compute),
          .link_seconds = timeline.busy_seconds(Row::messages) + timeline.busy_seconds(Row::inside),
          .seconds = timeline.seconds(),
          .spans = timeline.spans()};
}

DeviceForecast forecast_executor(const DeviceCluster& cluster, DeviceWay way, const DeviceBucket& bucket) {
  DeviceTimeline timeline(cluster);
  std::uint64_t lanes = 0;
  step(timeline, bucket, [&] { lanes = run_executor(cluster, bucket, way == DeviceWay::four_lanes, timeline); });
  return forecast_of(way, lanes, timeline);
}

DeviceForecast forecast_tiers(const DeviceCluster& cluster, const DeviceBucket& bucket) {
  DeviceForecast best;
  for (const std::uint64_t lanes : {std::uint64_t{1}, kTierLanes}) {
    DeviceTimeline timeline(cluster);
    step(timeline, bucket, [&] { TierStages(cluster, bucket, lanes, timeline).run(); });
    if (lanes == 1 || timeline.seconds() < best.seconds) {
      best = forecast_of(DeviceWay::tiers, lanes, timeline);
    }
  }
  return best;
}

DeviceForecast forecast_fused(const DeviceCluster& cluster, const DeviceBucket& bucket) {
  DeviceTimeline timeline(cluster);
  const codec::Codec codec(bucket.codec, bucket.dtype);
  timeline.kernel_of(fused_seconds(cluster, static_cast<double>(codec.payload_bytes(bucket.count))) -
                     cluster.host.kernel);
  return forecast_of(DeviceWay::fused, 0, timeline);
}

DeviceForecast forecast_nccl(const DeviceCluster& cluster, double seconds) {
  DeviceTimeline timeline(cluster);
  DeviceForecast forecast = forecast_of(DeviceWay::nccl, 0, timeline);
  forecast.counts.kernels = 1;
  forecast.host_seconds = cluster.host.group;
  forecast.link_seconds = seconds - cluster.host.group;
  forecast.seconds = seconds;
  forecast.spans = {{Row::host, DeviceTimeline::Kind::group, 0, cluster.host.group},
                    {Row::messages, DeviceTimeline::Kind::group, cluster.host.group, seconds}};
  return forecast;
}

}  // namespace

std::vector<DeviceWay> device_ways(const DeviceCluster& cluster) {
  std::vector<DeviceWay> ways{DeviceWay::nccl, DeviceWay::four_lanes, DeviceWay::one_lane};
  if (cluster.nodes > 1 && cluster.cards > 1) {
    ways.push_back(DeviceWay::tiers);
  }
  if (cluster.nodes == 1 && cluster.peer_access) {
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
    case DeviceWay::one_lane: forecast = forecast_executor(cluster, way, bucket); break;
    case DeviceWay::tiers: forecast = forecast_tiers(cluster, bucket); break;
    case DeviceWay::fused: forecast = forecast_fused(cluster, bucket); break;
  }
  forecast.nccl_seconds = nccl;
  return forecast;
}

}  // namespace gradwire::exchange
