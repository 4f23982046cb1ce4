// gpu_session: sessions over NCCL against sessions over host memory, byte for byte; captured steps; bad input. A
// process a rank, started by tests/gpu/ranks. Not part of tests/gpu/check, since sessions need libraries. Exits 0, 1,
// or 77 without a GPU.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <thread>

#include "gradwire/nccl.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/ranks_world.hpp"

namespace gradwire::gpu {
namespace {

constexpr std::size_t kTensors = 4;
constexpr std::uint64_t kCounts[kTensors] = {300000, 12289, 1, 70001};
constexpr std::uint64_t kSteps = 6;

// `deterministic`, since NCCL's own sums have their own order.
Policy policy_of(const std::string& codec) {
  return Policy::parse("deterministic = true\n[defaults]\ncodec = \"" + codec +
                       "\"\nalgorithm = \"two_shot\"\nsmall = \"off\"\n[bucket]\nbytes = \"512KiB\"\n");
}

std::vector<float> values_of(std::size_t tensor, int rank, std::uint64_t step) {
  std::vector<float> values(kCounts[tensor]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = 0.1 * static_cast<double>(i) + static_cast<double>(tensor) + 0.3 * static_cast<double>(step);
    values[i] = static_cast<float>(std::sin(x) * (1 + rank));
  }
  return values;
}

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

using Results = std::vector<std::vector<float>>;  // tensor after tensor, step after step

// All ranks on the host, as threads; what rank 0 got is what every rank gets.
Results host_results(const Policy& policy, int world_size) {
  auto world = make_inproc_world(world_size);
  Results results;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      Session session(world[static_cast<std::size_t>(rank)], policy);
      Results gradients(kTensors);
      std::vector<TensorId> ids;
      for (std::size_t t = 0; t < kTensors; ++t) {
        gradients[t].resize(kCounts[t]);
        ids.push_back(session.add("t" + std::to_string(t), view(gradients[t].data(), kCounts[t])));
      }
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        for (std::size_t t = 0; t < kTensors; ++t) {
          const auto values = values_of(t, rank, step);
          std::copy(values.begin(), values.end(), gradients[t].begin());
          session.ready(ids[t]);
        }
        session.finish();
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

/// One rank's gradients on the device, and a session over them.
class Trainer {
 public:
  Trainer(const World& world, const Policy& policy)
      : world_(world), session_(nccl::make_session(world.communicator(), world.stream(), policy)) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      gradients_.push_back(static_cast<float*>(device_allocate(kCounts[t] * sizeof(float))));
      ids_.push_back(session_.add("t" + std::to_string(t), view(gradients_[t], kCounts[t])));
    }
  }
  ~Trainer() {
    for (float* gradient : gradients_) {
      device_free(gradient);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void load(std::uint64_t step) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      staged_ = values_of(t, world_.rank(), step);
      cuda(cudaMemcpyAsync(gradients_[t], staged_.data(), bytes_of(staged_).size(), cudaMemcpyHostToDevice,
                           world_.stream()),
           "loading a gradient");
      cuda(cudaStreamSynchronize(world_.stream()), "loading a gradient");
    }
  }
  void enqueue() {
    for (const TensorId id : ids_) {
      session_.ready(id);
    }
    session_.finish();
  }
  // Reads on the caller's stream: finish() must have put it behind the results.
  void compare(Check& check, const Results& wanted, std::uint64_t step, const std::string& what) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      std::vector<float> got(kCounts[t]);
      cuda(cudaMemcpyAsync(got.data(), gradients_[t], bytes_of(got).size(), cudaMemcpyDeviceToHost, world_.stream()),
           "reading a gradient");
      cuda(cudaStreamSynchronize(world_.stream()), "reading a gradient");
      check.same_bytes(bytes_of(got), bytes_of(wanted[step * kTensors + t]),
                       what + ", step " + std::to_string(step) + ", tensor " + std::to_string(t));
    }
  }
  [[nodiscard]] Session& session() { return session_; }

 private:
  const World& world_;
  Session session_;
  std::vector<float*> gradients_;
  std::vector<TensorId> ids_;
  std::vector<float> staged_;
};

void check_bits(Check& check, const World& world, const std::string& codec) {
  const Results wanted = host_results(policy_of(codec), world.world_size());
  Trainer trainer(world, policy_of(codec));
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    trainer.load(step);
    trainer.enqueue();
    trainer.compare(check, wanted, step, codec);
  }
  check.that(trainer.session().statistics().device_memory->held_bytes > 0, "no device memory is counted");
}

void check_capture(Check& check, const World& world, const std::string& codec) {
  const Results wanted = host_results(policy_of(codec), world.world_size());
  Trainer trainer(world, policy_of(codec));
  trainer.session().reserve();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cuda(cudaStreamBeginCapture(world.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  trainer.enqueue();
  cuda(cudaStreamEndCapture(world.stream(), &graph), "cudaStreamEndCapture");
  cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    trainer.load(step);
    if (step == 3) {
      trainer.enqueue();  // a plain one between replays
    } else {
      cuda(cudaGraphLaunch(executable, world.stream()), "cudaGraphLaunch");
    }
    trainer.compare(check, wanted, step, codec + ", captured");
  }
  cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void check_bad_input(Check& check, const World& world) {
  Trainer trainer(world, policy_of("int8"));
  std::vector<float> host(100);
  const View there = view(host.data(), host.size());
  const auto says = [&](const std::string& got, const std::string& wanted) {
    check.that(got.find(wanted) != std::string::npos, "\"" + got + "\" does not say \"" + wanted + "\"");
  };
  says(message_of([&] { trainer.session().add("host", there); }), "\"host\" is in host memory");
  cudaGraph_t graph = nullptr;
  cuda(cudaStreamBeginCapture(world.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  says(message_of([&] { trainer.enqueue(); }), "call reserve()");
  cuda(cudaStreamEndCapture(world.stream(), &graph), "cudaStreamEndCapture");
  cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  trainer.load(0);
  trainer.enqueue();  // nothing is broken
  float* device = static_cast<float*>(device_allocate(400));
  Session on_host(make_inproc_world(1)[0], policy_of("int8"));
  says(message_of([&] { on_host.add("device", view(device, 100)); }), "is in the memory of a GPU");
  device_free(device);
}

int run(Check& check) {
  const World world;
  if (world.rank() != 0) {
    check.write_no_rows();
  }
  for (const char* codec : {"int8", "int4", "topk(1%)+int8", "exact"}) {
    check.part(std::string("session, ") + codec, [&] { check_bits(check, world, codec); });
  }
  for (const char* codec : {"int8", "int4", "topk(1%)+int8"}) {
    check.part(std::string("captured session, ") + codec, [&] { check_capture(check, world, codec); });
  }
  check.part("bad input", [&] { check_bad_input(check, world); });
  return check.finish();
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) { return gradwire::gpu::rank_main("gpu_session", argc, argv, &gradwire::gpu::run); }
