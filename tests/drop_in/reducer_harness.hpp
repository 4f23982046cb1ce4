// Defines a communicator's ranks as threads, and a job whose library is the test itself.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drop_in/host_reducer.hpp"
#include "gradwire/policy.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::drop_in {

using test::run_ranks;

inline constexpr std::uint64_t kCount = 20000;

inline Configuration configuration_of(const std::string& policy) {
  Configuration configuration;
  configuration.planner = plan::CallPlanner(Policy::parse("version = 1\n" + policy));
  return configuration;
}

inline Call all_reduce_of(std::uint64_t count, int world) {
  return {.function = Function::mpi_allreduce,
          .dtype = DType::f32,
          .reduction = Reduction::sum,
          .count = count,
          .world_size = world};
}

// A rank of the drop-in, over a transport of this process.
struct Rank {
  Rank(const Configuration& configuration, const std::shared_ptr<Transport>& transport,
       const AgreedSettings& agreement = {})
      : world(transport->world_size()), reducer(configuration, ledger, agreement, [this, transport] {
          ++connections;
          return transport;
        }) {}

  HostReducer::Route route_of(std::uint64_t count, const void* buffer) {
    return reducer.route(all_reduce_of(count, world), "sum", {.buffer = buffer});
  }

  // Makes one all-reduce; returns its route.
  HostReducer::Route reduce(std::uint64_t count, std::string_view name = {}) {
    // Tensors of different sizes have different buffers.
    HostReducer::Route route = reducer.route(all_reduce_of(count, world), "sum",
                                             {.name = name, .buffer = reinterpret_cast<const void*>(count)});
    if (route.decision.compress && !reducer.dry_run()) {
      std::vector<float> values(count, 0.3F);
      values[0] = 1;
      reducer.all_reduce(route, view(values.data(), count), view(values.data(), count));
      EXPECT_NEAR(values[1], 0.3 * world, 0.3 * world);
    } else {
      reducer.count_passed(route, 4 * count, 0);
    }
    return route;
  }

  int world;
  int connections = 0;
  Ledger ledger;
  HostReducer reducer;
};

// Makes a rank's calls with this test as the library: it sums in rank order, over a Communicator of its own.
struct Job {
  Job(const Configuration& configuration, const std::shared_ptr<Transport>& ours,
      const std::shared_ptr<Transport>& library)
      : rank(configuration, ours), sums(library) {}

  // Makes one call in place. `library_seconds` and `fails` describe the library's own call.
  HostReducer::Route reduce(std::vector<float>& values, double library_seconds = 1e-3, bool fails = false) {
    const std::uint64_t count = values.size();
    HostReducer::Route route =
        rank.reducer.route(all_reduce_of(count, rank.world), "sum", {.name = "gradient", .buffer = values.data()});
    const View view{values.data(), count, DType::f32};
    if (route.decision.compress) {
      rank.reducer.all_reduce(route, view, view);
      return route;
    }
    if (route.turn.trial) {
      ++trials;
      rank.reducer.begin_trial(route, view, true);
    }
    if (fails) {
      rank.reducer.drop_trial();
      return route;
    }
    sums.all_reduce(view, {.codec = CodecSpec::exact(), .algorithm = Algorithm::two_shot});
    if (route.turn.trial) {
      rank.reducer.end_trial(library_seconds, view);
    }
    rank.reducer.count_passed(route, 4 * count, library_seconds);
    return route;
  }

  Rank rank;
  Communicator sums;
  int trials = 0;
};

template <typename Body>
void run_jobs(int world, const Configuration& configuration, const Body& body) {
  const auto library = make_inproc_world(world);
  run_ranks(world, [&](const std::shared_ptr<Transport>& ours) {
    Job job(configuration, ours, library[static_cast<std::size_t>(ours->rank())]);
    body(job, ours->rank());
  });
}

// Returns values that int8 rounds.
inline std::vector<float> values_of(int rank, std::uint64_t count = kCount) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 101) % 1009) / 1009 - 0.5F;
  }
  return values;
}

inline std::vector<float> exact_sum(int world, std::uint64_t count = kCount) {
  std::vector<float> sum(count, 0);
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<float> values = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += values[i];
    }
  }
  return sum;
}

inline const char* const kAutomatic = "[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\n";

}  // namespace gradwire::drop_in
