// gpu_bench_all_reduce measures compressed all-reduces over NCCL ranks that share a GPU, in turn with ncclAllReduce.
// Each rank is a process, started by tests/gpu/ranks. A time is that of the slowest rank, from a barrier to the end of
// its stream.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels/device/operations.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/kernel_jobs.hpp"
#include "tests/gpu/ranks_world.hpp"

namespace gradwire::gpu {
namespace {

struct Buffers {
  explicit Buffers(std::size_t bytes)
      : input(static_cast<float*>(device_allocate(bytes))), output(static_cast<float*>(device_allocate(bytes))) {}
  ~Buffers() {
    device_free(input);
    device_free(output);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  float* input;
  float* output;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// How a compressed all-reduce is made.
struct Arm {
  const char* codec;
  bool four_lanes = false;  ///< four chunks per shard or more, as before a call was one lane: they overlap

  [[nodiscard]] std::string name() const { return codec + std::string(four_lanes ? ", four lanes," : ""); }
};

class Bench {
 public:
  Bench(Check& check, const World& world)
      : check_(check),
        world_(world),
        device_(transport::NcclMessages::over(world.communicator()), 0, world.stream()),
        executor_(device_.backend()) {
    defaults_ = std::getenv("NCCL_ALGO") == nullptr;
  }

  void run(std::uint64_t mib, const std::vector<Arm>& arms) {
    const std::string text = std::to_string(mib) + " MiB";
    const std::uint64_t count = (mib << 20) / sizeof(float);
    const Buffers buffers(count * sizeof(float));
    fill(buffers, count);
    std::vector<double> nccl_ms;
    std::vector<std::vector<double>> ours_ms(arms.size());
    const auto nccl_call = [&] {
      nccl(ncclAllReduce(buffers.input, buffers.output, count, ncclFloat, ncclSum, world_.communicator(),
                         world_.stream()),
           "ncclAllReduce");
    };
    for (int round = 0; round <= kRounds; ++round) {
      const double begun = check_.elapsed_s();
      const double nccl_time = time(nccl_call);
      std::vector<double> times;
      for (const Arm& arm : arms) {
        times.push_back(time([&] { enqueue(arm, buffers, count); }));
      }
      if (round > 0) {  // the first round makes connections and takes memory
        nccl_ms.push_back(nccl_time);
        for (std::size_t i = 0; i < arms.size(); ++i) {
          ours_ms[i].push_back(times[i]);
        }
      }
      const double round_s = check_.elapsed_s() - begun;
      if (round > 0 && world_.largest(check_.fits(round_s) ? 0 : 1) != 0) {
        break;
      }
    }
    const std::string setting = setting_text();
    const double theirs = median(nccl_ms);
    const std::string rounds = std::to_string(nccl_ms.size()) + " in turn, median";
    check_.row("ncclAllReduce " + text + setting, number(theirs, 2), "ms", "", "info", rounds);
    for (std::size_t i = 0; i < arms.size(); ++i) {
      const double ours = median(ours_ms[i]);
      check_.row(arms[i].name() + " " + text + setting, number(ours, 2), "ms", "", "info",
                 rounds + ", " + number(theirs / ours, 2) + " times as fast as ncclAllReduce");
    }
    enqueue(arms[0], buffers, count);
    const bool same = world_.agree(result_of(buffers, count));
    check_.that(same, text + ": ranks differ");
    check_.row("ranks bit-identical " + text + setting, same ? "yes" : "no", "", "yes", same ? "ok" : "failed",
               arms[0].codec);
  }

  /// Measures how long the host takes to enqueue a bucket, and to launch a graph of it.
  void run_host(std::uint64_t mib, const Arm& arm) {
    const std::uint64_t count = (mib << 20) / sizeof(float);
    const Buffers buffers(count * sizeof(float));
    fill(buffers, count);
    enqueue(arm, buffers, count);  // makes connections and takes memory
    finish_work();
    const Bytes eager = result_of(buffers, count);
    const double eager_us = host_us([&] { enqueue(arm, buffers, count); });

    cudaGraph_t graph = nullptr;
    device_.arena().set_fixed(true);
    cuda(cudaStreamBeginCapture(world_.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    enqueue(arm, buffers, count);
    cuda(cudaStreamEndCapture(world_.stream(), &graph), "cudaStreamEndCapture");
    device_.arena().set_fixed(false);
    cudaGraphExec_t executable = nullptr;
    cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    const double captured_us = host_us([&] { cuda(cudaGraphLaunch(executable, world_.stream()), "cudaGraphLaunch"); });
    check_.that(result_of(buffers, count) == eager, "a replay gives another result than the call that was captured");
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    const std::string what = "host time, " + arm.name() + " " + std::to_string(mib) + " MiB";
    check_.row(what + ", eager", number(eager_us, 1), "us", "", "info", "slowest rank, median");
    check_.row(what + ", captured", number(captured_us, 1), "us", "", "info", "slowest rank, median");
  }

 private:
  static std::string number(double value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
  }

  [[nodiscard]] std::string setting_text() const { return defaults_ ? " (NCCL's defaults)" : ""; }

  void finish_work() {
    cuda(cudaStreamSynchronize(world_.stream()), "cudaStreamSynchronize");
    device_.poll();
  }

  static Bytes result_of(const Buffers& buffers, std::uint64_t count) {
    Bytes result(count * sizeof(float));
    download(result.data(), buffers.output, result.size());
    return result;
  }

  /// Returns the time until `enqueues` returns on an idle device.
  template <class Enqueues>
  double host_us(Enqueues&& enqueues) {
    std::vector<double> times;
    for (int round = 0; round < kHostRounds; ++round) {
      static_cast<void>(world_.largest(0));
      const double begun = check_.elapsed_s();
      enqueues();
      const double mine = (check_.elapsed_s() - begun) * 1e6;
      finish_work();
      times.push_back(world_.largest(mine));
    }
    return median(times);
  }

  void fill(const Buffers& buffers, std::uint64_t count) const {
    const Bytes block = tensor(DType::f32, 1 << 20, 50 + static_cast<unsigned>(world_.rank()));
    for (std::uint64_t at = 0; at < count * sizeof(float); at += block.size()) {
      upload(reinterpret_cast<std::byte*>(buffers.input) + at, block.data(),
             std::min<std::size_t>(block.size(), count * sizeof(float) - at));
    }
  }

  void enqueue(const Arm& arm, const Buffers& buffers, std::uint64_t count) {
    const exchange::ChunkSize sessions = exchange::stream_chunks(world_.world_size());
    const exchange::ChunkSize four(sessions.bytes);
    exchange::Resolved resolved = exchange::resolve({.codec = CodecSpec::parse(arm.codec),
                                                     .second_hop = CodecSpec::parse(arm.codec),
                                                     .count = count,
                                                     .chunk_bytes = arm.four_lanes ? four : sessions},
                                                    {world_.rank(), world_.world_size()});
    device_.follow_caller();
    executor_.run(std::move(resolved.schedule), {.input = {buffers.input, 0, count},
                                                 .output = {buffers.output, 0, count},
                                                 .count = count,
                                                 .call = std::move(resolved.call),
                                                 .step = step_.as<std::uint32_t>(),
                                                 .status = status_.as<kernels::DeviceStatus>(),
                                                 .local_residual = {},
                                                 .owner_residual = {},
                                                 .name = "benchmark"});
    device_.lead_caller();
  }

  template <class Body>
  double time(Body&& body) {
    static_cast<void>(world_.largest(0));
    const double mine = static_cast<double>(watch_.time(world_.stream(), body));
    device_.poll();
    return world_.largest(mine);
  }

  static constexpr int kRounds = 7;
  static constexpr int kHostRounds = 21;
  Check& check_;
  const World& world_;
  exchange::CudaDevice device_;
  exchange::StreamExecutor executor_;
  Stopwatch watch_;
  Memory step_{Bytes(sizeof(std::uint32_t))};
  Memory status_{Bytes(sizeof(kernels::DeviceStatus))};
  bool defaults_ = false;
};

int run(Check& check) {
  const World world;
  if (world.rank() != 0) {
    check.write_no_rows();
  }
  Bench bench(check, world);
  const auto run = [&](std::uint64_t mib, const std::vector<Arm>& arms) {
    if (check.is_wanted(std::to_string(mib) + " MiB")) {
      bench.run(mib, arms);
    }
  };
  run(16, {{"int8"}, {"int8", true}});
  run(256, {{"int8"}, {"int8", true}});
  run(64, {{"int8"}, {"int8", true}, {"bf16"}, {"int4"}});
  if (check.is_wanted("host time")) {
    bench.run_host(25, {"int8"});
  }
  return check.finish();
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) {
  return gradwire::gpu::rank_main("gpu_bench_all_reduce", argc, argv, &gradwire::gpu::run);
}
