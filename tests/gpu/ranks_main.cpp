// gpu_ranks compares the stream executor over NCCL with the host executor, byte for byte. Each rank is a process,
// started by tests/gpu/ranks. Exits 0, 1, or 77 without a GPU.
#include <cstdlib>
#include <thread>

#include "codec/registry.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/ranks_world.hpp"

namespace gradwire::gpu {
namespace {

using exchange::CudaDevice;
using exchange::StreamExecutor;
using transport::NcclMessages;

constexpr std::chrono::seconds kTimeout{30};

/// A communicator of its own over the world's, its device, and the executor that runs schedules on it.
struct Lane {
  explicit Lane(const World& world)
      : device(NcclMessages::over(world.communicator()), 0, world.stream()), executor(device.backend()) {}
  Lane(std::unique_ptr<NcclMessages> messages, cudaStream_t stream)
      : device(std::move(messages), 0, stream), executor(device.backend()) {}
  void wait() { device.wait(device.mark(), kTimeout); }
  CudaDevice device;
  StreamExecutor executor;
};

void compare_steps(Check& check, const World& world, Lane& lane, const AllReduce& call, bool in_place) {
  constexpr std::uint32_t kFirst = 3;
  HostReference wanted(call, world.world_size());
  const DeviceSide side(world, call, kFirst, in_place);
  for (std::uint32_t step = kFirst; step < kFirst + (call.feedback ? 3U : 1U); ++step) {
    side.load(step);
    wanted.run(step);
    side.enqueue(lane.device, lane.executor);
    lane.wait();
    side.compare(check, wanted, call.name() + ", step " + std::to_string(step) + (in_place ? ", in place" : ""));
  }
}

bool check_codecs(Check& check, const World& world, Lane& lane) {
  constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f32, DType::f16, DType::f64};
  const std::vector<std::uint64_t> counts =
      check.small() ? std::vector<std::uint64_t>{4097} : std::vector<std::uint64_t>{1, 4097, 100'007};
  unsigned at = 0;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const std::uint16_t k : {0, 41}) {
      const CodecSpec codec{entry.id, k};
      const bool through = check.part(codec.to_string(), [&] {
        for (const std::uint64_t count : counts) {
          ++at;
          compare_steps(check, world, lane,
                        {.codec = codec,
                         .count = count,
                         .reduction = Reduction::mean,
                         .feedback = codec::Codec(codec, DType::f32).lossy()},
                        at % 2 == 0);
        }
        ++at;
        compare_steps(check, world, lane,
                      {.codec = codec,
                       .dtype = kDTypes[at % 5],
                       .count = 20'000,
                       .algorithm = at % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot,
                       .weighted = at % 3 == 0},
                      at % 2 == 1);
      });
      if (!through) {
        return false;
      }
    }
  }
  return true;
}

// Checks sums by NCCL itself of small integers, which are exact in any order.
void check_native(Check& check, const World& world, Lane& lane) {
  const std::uint64_t count = 50'003;
  std::vector<float> values(count);
  std::vector<float> wanted(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < world.world_size(); ++rank) {
      const auto value = static_cast<float>(static_cast<int>((i * 31 + static_cast<unsigned>(rank) * 17) % 199) - 99);
      wanted[i] += value;
      values[i] = rank == world.rank() ? value : values[i];
    }
  }
  const Memory memory(bytes_of(values));
  const Memory status{Bytes(sizeof(kernels::DeviceStatus))};
  const Memory step{Bytes(sizeof(std::uint32_t))};
  exchange::Resolved resolved =
      exchange::resolve({.algorithm = Algorithm::dense, .count = count, .native = exchange::kStreamNativeSum},
                        {world.rank(), world.world_size()});
  lane.device.follow_caller();
  lane.executor.run(std::move(resolved.schedule), {.input = {memory.data(), 0, count},
                                                   .output = {memory.data(), 0, count},
                                                   .count = count,
                                                   .call = std::move(resolved.call),
                                                   .step = step.as<std::uint32_t>(),
                                                   .status = status.as<kernels::DeviceStatus>(),
                                                   .local_residual = {},
                                                   .owner_residual = {},
                                                   .name = "native"});
  lane.device.lead_caller();
  lane.wait();
  check.same_bytes(memory.read(), bytes_of(wanted), "dense, by NCCL");
}

// Both communicators have collectives of their own under way at the same time.
void check_two_communicators(Check& check, const World& world, Lane& lane) {
  const AllReduce calls[] = {
      {.codec = CodecSpec::parse("int8"), .count = 1'000'003},
      {.codec = CodecSpec::parse("int4"), .count = 700'001, .reduction = Reduction::mean, .feedback = true}};
  const Stream stream;
  Lane second(NcclMessages::over(world.communicator()), static_cast<cudaStream_t>(stream.get()));
  HostReference first_wanted(calls[0], world.world_size());
  HostReference second_wanted(calls[1], world.world_size());
  const DeviceSide first_side(world, calls[0], 1, false);
  const DeviceSide second_side(world, calls[1], 1, false);
  for (std::uint32_t step = 1; step <= 3; ++step) {
    first_side.load(step);
    second_side.load(step);
    first_wanted.run(step);
    second_wanted.run(step);
    first_side.enqueue(lane.device, lane.executor);
    second_side.enqueue(second.device, second.executor);
    lane.wait();
    second.wait();
    first_side.compare(check, first_wanted, "two communicators, the first, step " + std::to_string(step));
    second_side.compare(check, second_wanted, "two communicators, the second, step " + std::to_string(step));
  }
}

// One graph is replayed: device memory advances the step, and with it the signs of the rotation and the residuals.
void check_capture(Check& check, const World& world, Lane& lane) {
  const AllReduce call{
      .codec = CodecSpec::parse("int4"), .count = 200'003, .reduction = Reduction::mean, .feedback = true};
  HostReference wanted(call, world.world_size());
  const DeviceSide side(world, call, 1, false);
  side.enqueue(lane.device, lane.executor);  // takes the memory and makes the connections
  lane.wait();
  wanted.run(1);
  side.compare(check, wanted, "before the capture");

  cudaGraph_t graph = nullptr;
  lane.device.arena().set_fixed(true);
  cuda(cudaStreamBeginCapture(world.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  side.enqueue(lane.device, lane.executor);
  cuda(cudaStreamEndCapture(world.stream(), &graph), "cudaStreamEndCapture");
  lane.device.arena().set_fixed(false);
  cudaGraphExec_t executable = nullptr;
  cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (std::uint32_t step = 2; step <= 5; ++step) {
    side.load(step);
    wanted.run(step);
    cuda(cudaGraphLaunch(executable, world.stream()), "cudaGraphLaunch");
    cuda(cudaStreamSynchronize(world.stream()), "a replay");
    side.compare(check, wanted, "replay of step " + std::to_string(step));
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

void expect_error(Check& check, ErrorCode code, const char* word, const std::string& what, auto&& body) {
  try {
    body();
    check.fail(what + ": nothing was thrown");
  } catch (const Error& error) {
    check.that(error.code() == code && std::string(error.what()).find(word) != std::string::npos,
               what + ": " + std::string(to_string(error.code())) + ": " + error.what());
  }
}

void check_exhausted(Check& check, const World& world) {
  Lane lane(world);
  expect_error(check, ErrorCode::out_of_memory, "1125899906842624", "a pool asked for 2^50 bytes",
               [&] { static_cast<void>(lane.device.arena().acquire(std::size_t{1} << 50)); });
  const AllReduce call{.codec = CodecSpec::parse("int8"), .count = 300'000};
  const DeviceSide side(world, call, 1, true);
  lane.device.arena().set_fixed(true);  // as during capture, with nothing reserved
  expect_error(check, ErrorCode::out_of_memory, "reserve", "an all-reduce without reserved memory",
               [&] { side.enqueue(lane.device, lane.executor); });
  lane.device.abort(Error(ErrorCode::out_of_memory, "nothing was reserved"));
  expect_error(check, ErrorCode::aborted, "", "the next all-reduce", [&] { side.enqueue(lane.device, lane.executor); });
}

// Rank 0 stays away; the others wait for it until they are told to give up. The world's communicator does not notice.
void check_abort(Check& check, const World& world) {
  const AllReduce call{.codec = CodecSpec::parse("int8"), .count = 1'000'000};
  const DeviceSide side(world, call, 1, true);
  Lane lane(world);
  side.enqueue(lane.device, lane.executor);  // once with all ranks, so that no rank waits for a connection below
  lane.wait();
  const double begun = check.elapsed_s();
  if (world.rank() != 0) {
    side.enqueue(lane.device, lane.executor);
  }
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    lane.device.abort(Error(ErrorCode::aborted, "told to by the check", ErrorCause::world));
  });
  expect_error(check, ErrorCode::aborted, "told to by the check", "a collective under way that is aborted", [&] {
    while (true) {
      lane.device.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  other.join();
  cuda(cudaStreamSynchronize(lane.device.stream(exchange::StreamBackend::Queue::communication)),
       "the aborted communicator's stream");
  check.that(check.elapsed_s() - begun < 15, "the abort took " + std::to_string(check.elapsed_s() - begun) + " s");
  check.that(world.largest(world.rank()) == world.world_size() - 1, "the job's own communicator after the abort");
}

int run(Check& check) {
  const World world;
  if (world.rank() != 0) {
    check.write_no_rows();
  } else {
    int version = 0;
    nccl(ncclGetVersion(&version), "ncclGetVersion");
    std::printf("gpu_ranks: %d ranks, NCCL %d, %s\n", world.world_size(), version, describe_device().c_str());
  }
  bool through = true;
  {
    Lane lane(world);
    through = check_codecs(check, world, lane) &&
              check.part("NCCL's own sum", [&] { check_native(check, world, lane); }) &&
              check.part("tiers of 2 x 2", [&] { check_tiers(check, world, lane.device, lane.executor); }) &&
              check.part("two communicators at once", [&] { check_two_communicators(check, world, lane); }) &&
              check.part("capture and replay", [&] { check_capture(check, world, lane); });
  }
  through = through && check.part("pool exhaustion", [&] { check_exhausted(check, world); }) &&
            check.part("abort during a collective", [&] { check_abort(check, world); });
  if (through) {
    check.that(world.largest(static_cast<double>(check.failures())) == 0 || check.failures() != 0,
               "another rank failed");
  } else {
    static_cast<void>(check.finish());
    std::fflush(nullptr);
    std::_Exit(kFailed);  // ending a communicator would wait for ranks that are elsewhere
  }
  return check.finish();
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) { return gradwire::gpu::rank_main("gpu_ranks", argc, argv, &gradwire::gpu::run); }
