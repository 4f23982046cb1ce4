// Tests sessions whose policy names exact+zstd: gradients and broadcasts have the bits of exact, in fewer bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "model.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

struct PackedRun {
  std::vector<std::vector<float>> results;  // by rank: all gradients of all steps
  Statistics statistics;                    // of all ranks
  std::uint64_t travelled = 0;              // bytes that transports sent, of all ranks
};

PackedRun train(const std::string& policy, Threading threading) {
  constexpr int kRanks = 3;
  PackedRun run{std::vector<std::vector<float>>(kRanks), {}, 0};
  std::mutex mutex;
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::parse(policy), {.threading = threading, .compare_ranks_every = 1});
    add_all(session, gradients);
    std::vector<float> all;
    for (std::uint64_t step = 0; step < 4; ++step) {
      fill(gradients, transport->rank(), step);
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
      for (const Gradient& gradient : gradients) {
        all.insert(all.end(), gradient.values.begin(), gradient.values.end());
      }
    }
    const Statistics statistics = session.statistics().all();
    const std::uint64_t sent = transport->counters().bytes_sent;
    const std::lock_guard lock(mutex);
    run.results[static_cast<std::size_t>(transport->rank())] = std::move(all);
    run.statistics.add(statistics);
    run.travelled += sent;
  });
  return run;
}

const std::string kSmallOff = "\nalgorithm = \"two_shot\"\nsmall = \"off\"\n";

TEST(PackedSession, StepsHaveTheBitsOfExactInFewerBytes) {
  for (const Threading threading : kThreading) {
    const PackedRun exact = train("[defaults]\ncodec = \"exact\"" + kSmallOff, threading);
    const PackedRun packed = train("[defaults]\ncodec = \"exact+zstd\"" + kSmallOff, threading);
    EXPECT_EQ(packed.results, exact.results);
    EXPECT_EQ(packed.statistics.frames_sent, exact.statistics.frames_sent);
    EXPECT_LT(packed.statistics.bytes_sent * 1.1, exact.statistics.bytes_sent);
    EXPECT_EQ(packed.travelled - packed.statistics.bytes_sent, exact.travelled - exact.statistics.bytes_sent)
        << "statistics must say what travelled; the rest are agreements";
    EXPECT_GT(packed.statistics.ratio(), 1.1);
  }
}

TEST(PackedSession, AutoMayTakeIt) {
  const PackedRun run =
      train("[defaults]\ncodec = \"auto\"\nallow = [\"exact+zstd\"]\nsmall = \"off\"\n", Threading::main_thread);
  EXPECT_EQ(run.results[0], run.results[1]);
  EXPECT_EQ(run.results[0], run.results[2]);
  const Error error = error_of(
      [] { static_cast<void>(Policy::parse("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\", \"exact+zstd\"]\n")); });
  EXPECT_THAT(error.what(), ::testing::HasSubstr("exact+zstd after bf16 takes no fewer bits"));
}

// Mutation tried: the session broadcasts by exact whatever its policy is.
TEST(PackedSession, BroadcastsArePackedAsWell) {
  const auto sent = [](const char* codec) {
    std::uint64_t bytes = 0;
    std::mutex mutex;
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      auto gradients = make_gradients();
      fill(gradients, transport->rank(), 7);
      Session session(transport, Policy::uniform(codec));
      std::vector<View> values;
      for (Gradient& gradient : gradients) {
        values.push_back(view(gradient.values.data(), gradient.values.size()));
      }
      session.broadcast(values, 1);
      for (std::size_t t = 0; t < gradients.size(); ++t) {
        for (std::uint64_t i = 0; i < gradients[t].values.size(); ++i) {
          ASSERT_EQ(gradients[t].values[i], gradient_value(t, i, 1, 7));
        }
      }
      const std::lock_guard lock(mutex);
      bytes += transport->counters().bytes_sent;
    });
    return static_cast<double>(bytes);
  };
  EXPECT_LT(1.1 * sent("exact+zstd"), sent("exact"));
  EXPECT_EQ(sent("int8"), sent("exact")) << "parameters are exact whatever becomes of gradients";
}

TEST(PackedSession, ARankThatBroadcastsAnotherWayIsNamed) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& transport) {
    Session session(transport, Policy::uniform(transport->rank() == 0 ? "exact" : "exact+zstd"));
    std::vector<float> values(9000);
    const View all = view(values.data(), values.size());
    session.broadcast({&all, 1}, 0);
  });
  for (const auto& error : errors) {
    ASSERT_NE(error, nullptr);
    EXPECT_THROW(std::rethrow_exception(error), Error);
  }
}

}  // namespace
}  // namespace gradwire::test
