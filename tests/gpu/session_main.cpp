// gpu_session compares sessions over NCCL with sessions over host memory, byte for byte, and tests captured steps and
// bad input. Each rank is a process, started by tests/gpu/ranks. It is not part of tests/gpu/check, since sessions need
// libraries. Exits 0, 1, or 77 without a GPU.
#include <functional>

#include "gradwire/nccl.hpp"
#include "tests/gpu/ranks_world.hpp"
#include "tests/gpu/session_trainer.hpp"

namespace gradwire::gpu {
namespace {

Trainer trainer_of(const World& world, const std::string& codec, bool scaled = false, bool joins = false) {
  return {world.rank(), world.stream(),
          nccl::make_session(world.communicator(), world.stream(), session_policy(codec, joins)), scaled};
}

void check_bits(Check& check, const World& world, const std::string& codec, bool scaled = false, bool joins = false) {
  const Results wanted = host_results(session_policy(codec), world.world_size(), scaled);
  Trainer trainer = trainer_of(world, codec, scaled, joins);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    trainer.train(step);
    compare_step(check, trainer.results(), wanted, step,
                 codec + (scaled ? ", scaled" : "") + (joins ? ", joined" : ""));
  }
  check.that(trainer.session().statistics().device_memory->held_bytes > 0, "no device memory is counted");
}

void check_capture(Check& check, const World& world, const std::string& codec) {
  const Results wanted = host_results(session_policy(codec), world.world_size());
  Trainer trainer = trainer_of(world, codec);
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
      trainer.enqueue();  // an uncaptured step between replays
    } else {
      cuda(cudaGraphLaunch(executable, world.stream()), "cudaGraphLaunch");
    }
    compare_step(check, trainer.results(), wanted, step, codec + ", captured");
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
  Trainer trainer = trainer_of(world, "int8");
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
  trainer.enqueue();  // the session still works
  float* device = static_cast<float*>(device_allocate(400));
  Session on_host(make_inproc_world(1)[0], session_policy("int8"));
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
    check.part(std::string("session with scales, ") + codec, [&] { check_bits(check, world, codec, true); });
  }
  for (const char* codec : {"int8", "int4", "topk(1%)+int8"}) {
    check.part(std::string("captured session, ") + codec, [&] { check_capture(check, world, codec); });
  }
  check.part("session with joined buckets, int8", [&] { check_bits(check, world, "int8", false, true); });
  check.part("bad input", [&] { check_bad_input(check, world); });
  return check.finish();
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) { return gradwire::gpu::rank_main("gpu_session", argc, argv, &gradwire::gpu::run); }
