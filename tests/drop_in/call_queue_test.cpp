// Tests calls that return at once, on ranks that are threads: random programs over several communicators.
#include "drop_in/call_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "drop_in/host_reducer.hpp"
#include "gradwire/policy.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::drop_in {
namespace {

using test::run_ranks;

constexpr int kWorld = 3;
constexpr std::size_t kComms = 3;

struct Sum {
  std::vector<float> values;
  std::atomic<bool> done = false;
};

// One rank of one communicator.
struct Endpoint {
  Endpoint(const Configuration& configuration, std::shared_ptr<Transport> transport)
      : reducer(configuration, ledger, {}, [transport = std::move(transport)] { return transport; }) {}

  void make(Sum& sum) {
    const std::uint64_t count = sum.values.size();
    const HostReducer::Route route = reducer.route({.function = Function::mpi_allreduce,
                                                    .dtype = DType::f32,
                                                    .reduction = Reduction::sum,
                                                    .count = count,
                                                    .world_size = kWorld},
                                                   "sum", {.buffer = sum.values.data()});
    ASSERT_TRUE(route.decision.compress);
    reducer.all_reduce(route, view(sum.values.data(), count), view(sum.values.data(), count));
  }

  Ledger ledger;
  HostReducer reducer;
  CallQueue queue;  // destroyed before the reducer
};

void fill(Sum& sum, int rank, std::size_t count) {
  sum.values.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    sum.values[i] = static_cast<float>((i * 31 + static_cast<std::size_t>(rank) * 7) % 101) / 101;
  }
}

void check(const Sum& sum, unsigned seed) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    double exact = 0;
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      exact += static_cast<double>((i * 31 + rank * 7) % 101) / 101;
    }
    ASSERT_LE(std::fabs(sum.values[i] - exact), 2.0 * kWorld / 254) << "element " << i << ", seed " << seed;
  }
}

// Plays one rank's part in the program of a seed: it posts in an order of its own, waits, and makes blocking calls
// between.
void play(std::vector<std::unique_ptr<Endpoint>>& endpoints, int rank, unsigned seed) {
  std::mt19937 shared(seed);
  std::mt19937 own(seed * 7919U + static_cast<unsigned>(rank));
  std::deque<Sum> sums;  // a deque, so addresses stay
  std::vector<Sum*> out;
  for (int part = 0; part < 2; ++part) {
    std::vector<std::size_t> posts;  // by communicator
    std::vector<std::vector<std::size_t>> counts(kComms);
    for (std::size_t comm = 0; comm < kComms; ++comm) {
      for (unsigned i = shared() % 3; i > 0; --i) {
        posts.push_back(comm);
        counts[comm].push_back(20 + shared() % 200);
      }
    }
    std::shuffle(posts.begin(), posts.end(), own);
    std::vector<std::size_t> next(kComms, 0);
    for (const std::size_t comm : posts) {
      Sum& sum = sums.emplace_back();
      fill(sum, rank, counts[comm][next[comm]++]);
      out.push_back(&sum);
      endpoints[comm]->queue.post([&sum, endpoint = endpoints[comm].get()] {
        endpoint->make(sum);
        sum.done = true;
        sum.done.notify_all();
      });
    }
    std::shuffle(out.begin(), out.end(), own);
    for (std::size_t waits = own() % (out.size() + 1); waits > 0; --waits) {
      out.back()->done.wait(false);
      check(*out.back(), seed);
      out.pop_back();
    }
    Endpoint& endpoint = *endpoints[shared() % kComms];
    Sum blocking;
    fill(blocking, rank, 20 + shared() % 200);
    endpoint.queue.drain();
    endpoint.make(blocking);
    check(blocking, seed);
  }
  for (Sum* sum : out) {
    sum->done.wait(false);
    check(*sum, seed);
  }
}

// Mutation tried: drain() does not wait; then the test crashes.
TEST(CallQueue, RandomProgramsEndAndAreRight) {
  Configuration configuration;
  configuration.planner = plan::CallPlanner(Policy::parse("version = 1\nfloor = 64\n"));
  std::vector<std::vector<std::shared_ptr<Transport>>> worlds;
  for (std::size_t comm = 0; comm < kComms; ++comm) {
    worlds.push_back(make_inproc_world(kWorld));
  }
  constexpr unsigned kSeeds = 10000 / test::kStepShare;
  run_ranks(kWorld, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    for (const auto& world : worlds) {
      endpoints.push_back(std::make_unique<Endpoint>(configuration, world[static_cast<std::size_t>(rank)]));
    }
    for (unsigned seed = 0; seed < kSeeds && !::testing::Test::HasFailure(); ++seed) {
      play(endpoints, rank, seed);
    }
  });
}

TEST(CallQueue, ItsEndWaitsForWhatWasPosted) {
  std::atomic<int> made = 0;
  {
    CallQueue queue;
    for (int i = 0; i < 100; ++i) {
      queue.post([&made] { ++made; });
    }
  }
  EXPECT_EQ(made, 100);
}

}  // namespace
}  // namespace gradwire::drop_in
