// ptx_session compares sessions over device memory, whose kernels are interpreted, with sessions over host memory, byte
// for byte. Ranks are threads with a stream each. Host threads carry the bytes (gradwire/cuda.hpp), or the
// interpreter's NCCL does (gradwire/nccl.hpp).
#include <exception>
#include <memory>

#include "gradwire/cuda.hpp"
#include "gradwire/nccl.hpp"
#include "tests/gpu/session_trainer.hpp"

namespace gradwire::gpu {
namespace {

constexpr int kRanks = 3;

enum class Over : std::uint8_t { relays, nccl };

Session make_session(Over over, const ncclUniqueId& id, int rank, std::shared_ptr<Transport> transport,
                     cudaStream_t stream, const std::string& codec, bool joins) {
  if (over == Over::relays) {
    return cuda::make_session(std::move(transport), stream, session_policy(codec, joins));
  }
  ncclComm_t communicator = nullptr;  // lives as long as the process
  if (ncclCommInitRank(&communicator, kRanks, id, rank) != ncclSuccess) {
    throw std::runtime_error("ncclCommInitRank");
  }
  return nccl::make_session(communicator, stream, session_policy(codec, joins));
}

// A captured step is replayed as every step.
Results device_results(Trainer& trainer, cudaStream_t stream, std::uint64_t steps, bool captured) {
  Results all;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (captured) {
    trainer.session().reserve();
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    trainer.enqueue();
    cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (captured) {
      trainer.load(step);
      cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    } else {
      trainer.train(step);
    }
    for (auto& values : trainer.results()) {
      all.push_back(std::move(values));
    }
  }
  if (captured) {
    cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  return all;
}

void check_session(Check& check, const std::string& codec, Over over, bool captured = false, bool joins = false) {
  ncclUniqueId id{};
  ncclGetUniqueId(&id);
  const std::uint64_t steps = check.small() ? 2 : kSteps;
  const Results wanted = host_results(session_policy(codec), kRanks);  // the same, joined or not
  const auto world = make_inproc_world(kRanks);
  Results got[kRanks];
  std::string errors[kRanks];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const Stream own;
        auto* const stream = static_cast<cudaStream_t>(own.get());
        Trainer trainer(rank, stream,
                        make_session(over, id, rank, world[static_cast<std::size_t>(rank)], stream, codec, joins));
        got[rank] = device_results(trainer, stream, steps, captured);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        world[static_cast<std::size_t>(rank)]->abort(Error(ErrorCode::internal, "rank failed"));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string what = codec + ", rank " + std::to_string(rank);
    check.that(errors[rank].empty(), what + ": " + errors[rank]);
    for (std::uint64_t step = 0; errors[rank].empty() && step < steps; ++step) {
      const auto first = got[rank].begin() + static_cast<std::ptrdiff_t>(step * kTensors);
      compare_step(check, {first, first + kTensors}, wanted, step, what);
    }
  }
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) {
  using namespace gradwire::gpu;
  Check check("ptx_session", argc, argv);
  if (const std::string missing = why_no_device(); !missing.empty()) {
    return check.skip(missing);
  }
  check.part("int8 over relays", [&] { check_session(check, "int8", Over::relays); });
  for (const char* codec : {"int8", "int4", "topk(1%)+int8"}) {
    check.part(codec + std::string(" over NCCL"), [&] { check_session(check, codec, Over::nccl); });
  }
  check.part("int8 over NCCL, joined", [&] { check_session(check, "int8", Over::nccl, false, true); });
  check.part("int8 over NCCL, joined, captured", [&] { check_session(check, "int8", Over::nccl, true, true); });
  check.part("int4 over NCCL, captured", [&] { check_session(check, "int4", Over::nccl, true); });
  return check.finish();
}
