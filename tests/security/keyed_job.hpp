// A job over four ranks on two nodes, whose messages are recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "key_in_environment.hpp"
#include "recorded_traffic.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {

inline constexpr int kRanks = 4;
inline constexpr Algorithm kAlgorithms[] = {Algorithm::automatic, Algorithm::two_shot, Algorithm::one_shot,
                                            Algorithm::hierarchical, Algorithm::dense};

using Results = std::vector<std::vector<float>>;

/// Makes calls of two communicators and steps of two sessions between the same ranks; returns all results.
inline Results job(const std::shared_ptr<Transport>& transport) {
  Results results;
  const auto buffer = [&](std::uint64_t count) -> View {
    results.push_back(marked(transport->rank(), count, static_cast<unsigned>(results.size())));
    return view(results.back().data(), count);
  };
  results.reserve(1000);
  for (int twice = 0; twice < 2; ++twice) {
    Communicator communicator(transport);
    for (const Algorithm algorithm : kAlgorithms) {
      for (const char* codec : {"exact", "int8", "topk(10%)+int8"}) {
        communicator.all_reduce(buffer(6000), {.codec = codec, .algorithm = algorithm, .chunk_bytes = 16384});
        communicator.all_reduce(buffer(30), {.codec = codec, .algorithm = algorithm, .reduction = Reduction::mean});
      }
    }
    communicator.all_reduce(buffer(5000), {.codec = "int8", .weight = 1.0 + transport->rank()});
    communicator.broadcast(buffer(3000), 1);
    communicator.barrier();
  }
  for (int twice = 0; twice < 2; ++twice) {
    Policy policy = Policy::uniform(twice == 0 ? "int8" : "exact");
    policy.bucket_bytes = 20000;
    Session session(transport, policy);
    std::vector<std::pair<TensorId, View>> tensors;
    for (const std::uint64_t count : {9000U, 5U, 700U}) {
      const View values = buffer(count);
      tensors.emplace_back(session.add("tensor " + std::to_string(tensors.size()), values), values);
    }
    for (int step = 0; step < 3; ++step) {
      for (const auto& [id, values] : tensors) {
        session.ready(id);
      }
      session.finish();
    }
    const View shared = buffer(2000);
    session.broadcast({&shared, 1}, 2);
  }
  return results;
}

struct JobRun {
  std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>();
  std::vector<Results> results = std::vector<Results>(kRanks);
};

inline JobRun run_job() {
  JobRun run;
  run_ranks(recorded_world(kRanks, run.traffic, {0, 0, 1, 1}), [&](const std::shared_ptr<Transport>& transport) {
    run.results[static_cast<std::size_t>(transport->rank())] = job(transport);
  });
  return run;
}

}  // namespace gradwire::test
