// ptx_session compares sessions over device memory, whose kernels are interpreted, with sessions over host memory, byte
// for byte. Ranks are threads with a stream each. Host threads carry the bytes (gradwire/cuda.hpp), or the
// interpreter's NCCL does (gradwire/nccl.hpp), or one kernel inside the node.
#include <barrier>
#include <cstdlib>
#include <exception>
#include <memory>

#include "gradwire/cuda.hpp"
#include "gradwire/nccl.hpp"
#include "session/device/device_runner.hpp"
#include "tests/gpu/session_trainer.hpp"
#include "tests/support/host_device.hpp"

extern "C" std::uint64_t gradwire_ptx_launches(const char* part);

namespace gradwire::gpu {
namespace {

enum class Over : std::uint8_t { relays, nccl, windows };

struct Job {
  std::string what;
  Policy policy;
  Over over = Over::nccl;
  int ranks = 3;
  bool captured = false;  // a captured step is replayed as every step
};

Session make_session(const Job& job, const ncclUniqueId& id, int rank, std::shared_ptr<Transport> transport,
                     cudaStream_t stream) {
  if (job.over == Over::relays) {
    return cuda::make_session(std::move(transport), stream, job.policy);
  }
  ncclComm_t communicator = nullptr;  // lives as long as the process
  if (ncclCommInitRank(&communicator, job.ranks, id, rank) != ncclSuccess) {
    throw std::runtime_error("ncclCommInitRank");
  }
  return nccl::make_session(communicator, stream, job.policy);
}

// Lets all grids end before the next step: when a grid has read another one's flags, the interpreter does not order
// later grids of its stream behind that other grid.
void end_step(const Job& job, std::barrier<>& between, cudaStream_t stream) {
  if (job.over == Over::windows) {
    between.arrive_and_wait();
    cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    between.arrive_and_wait();
  }
}

Results device_results(const Job& job, Trainer& trainer, cudaStream_t stream, std::uint64_t steps,
                       std::barrier<>& between) {
  Results all;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (job.captured) {
    trainer.session().reserve();
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    trainer.enqueue();
    cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (job.captured) {
      trainer.load(step);
      cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    } else {
      trainer.train(step);
    }
    end_step(job, between, stream);
    for (auto& values : trainer.results()) {
      all.push_back(std::move(values));
    }
  }
  if (job.captured) {
    cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  return all;
}

void compare_session(Check& check, const Job& job, const Results& wanted) {
  ncclUniqueId id{};
  ncclGetUniqueId(&id);
  const std::uint64_t steps = check.small() ? 2 : kSteps;
  const auto world = make_inproc_world(job.ranks);
  const auto ranks = static_cast<std::size_t>(job.ranks);
  std::vector<Results> got(ranks);
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  std::barrier between(job.ranks);
  const std::uint64_t before = gradwire_ptx_launches("reduce_windows");
  static_cast<void>(setenv("GRADWIRE_NODE_KERNEL", job.over == Over::windows ? "1" : "0", 1));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const Stream own;
        auto* const stream = static_cast<cudaStream_t>(own.get());
        const int number = static_cast<int>(rank);
        Trainer trainer(number, stream, make_session(job, id, number, world[rank], stream));
        got[rank] = device_results(job, trainer, stream, steps, between);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        world[rank]->abort(Error(ErrorCode::internal, "rank failed"));
        between.arrive_and_drop();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  static_cast<void>(unsetenv("GRADWIRE_NODE_KERNEL"));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string what = job.what + ", rank " + std::to_string(rank);
    check.that(errors[rank].empty(), what + ": " + errors[rank]);
    for (std::uint64_t step = 0; errors[rank].empty() && step < steps; ++step) {
      const auto first = got[rank].begin() + static_cast<std::ptrdiff_t>(step * kTensors);
      compare_step(check, {first, first + kTensors}, wanted, step, what);
    }
  }
  const std::uint64_t launched = gradwire_ptx_launches("reduce_windows") - before;
  check.that(launched == (job.over == Over::windows ? ranks * steps : 0),
             job.what + ": " + std::to_string(launched) + " kernels over windows");
}

void check_session(Check& check, const std::string& codec, Over over, bool captured = false, bool joins = false) {
  // Joined or not, results are the same.
  compare_session(check, {codec, session_policy(codec, joins), over, 3, captured},
                  host_results(session_policy(codec), 3));
}

// The first bucket goes by the kernel, and the other one is exact and goes by messages: the interpreter does not order
// a second kernel over windows behind the first one of other ranks.
void check_windows(Check& check, const std::string& codec, bool captured) {
  const Policy policy = Policy::parse("deterministic = true\n[defaults]\ncodec = \"" + codec +
                                      "\"\nalgorithm = \"two_shot\"\nsmall = \"off\"\n[[rule]]\nmatch = \"t0\"\n"
                                      "codec = \"exact\"\n");
  compare_session(check, {codec + " in windows", policy, Over::windows, 2, captured}, host_results(policy, 2));
}

constexpr int kTierRanks = 4;  // two nodes of two

// Sessions over host memory, whose sums inside nodes have the same order as those of the interpreter's NCCL.
Results tier_results(const Policy& policy, std::uint64_t steps) {
  const auto world = make_inproc_world(kTierRanks);
  Results results;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kTierRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto device = std::make_shared<test::HostDevice>(world[static_cast<std::size_t>(rank)]);
      device->let_sum_in_nodes();
      Session session =
          session::make_session(std::make_unique<session::DeviceRunner>(device, nullptr, SessionOptions{}), policy, {});
      Results gradients(kTensors);
      std::vector<TensorId> ids;
      for (std::size_t t = 0; t < kTensors; ++t) {
        gradients[t].resize(kCounts[t]);
        ids.push_back(session.add("t" + std::to_string(t), view(gradients[t].data(), kCounts[t])));
      }
      for (std::uint64_t step = 0; step < steps; ++step) {
        for (std::size_t t = 0; t < kTensors; ++t) {
          const std::vector<float> values = values_of(t, rank, step);
          std::copy(values.begin(), values.end(), gradients[t].begin());
          session.ready(ids[t]);
        }
        session.finish();
        device->synchronize();
        if (rank == 0) {
          results.insert(results.end(), gradients.begin(), gradients.end());
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

void check_tiers(Check& check, const std::string& codec, bool captured) {
  const Policy policy = Policy::parse("[defaults]\ncodec = \"" + codec +
                                      "\"\nalgorithm = \"hierarchical\"\nsmall = \"off\"\n[bucket]\nbytes = "
                                      "\"512KiB\"\n[tier]\nranks_per_node = 2\n");
  compare_session(check, {codec + " in tiers", policy, Over::nccl, kTierRanks, captured},
                  tier_results(policy, check.small() ? 2 : kSteps));
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
  check.part("int8 in windows", [&] { check_windows(check, "int8", false); });
  check.part("int8 in windows, captured", [&] { check_windows(check, "int8", true); });
  check.part("int8 in tiers", [&] { check_tiers(check, "int8", false); });
  check.part("int4 in tiers, captured", [&] { check_tiers(check, "int4", true); });
  return check.finish();
}
