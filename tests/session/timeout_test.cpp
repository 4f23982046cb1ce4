// Tests the extremes of timeouts: the longest is ten years, and a timeout that ends at once is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/timeout.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kEnds[] = {milliseconds::max(), milliseconds(INT64_MAX / 1'000'000 - 1), kLongestTimeout};

void train(Session& session) {
  std::vector<float> gradient(5000, 1.0F);
  const TensorId id = session.add("t", view(gradient.data(), gradient.size()));
  for (int step = 0; step < 3; ++step) {
    session.ready(id);
    session.finish();
  }
}

// Mutation tried, without the bound: such a timeout wraps around, and ends a moment ago.
TEST(Timeout, TheLongestIsAWaitLikeAnyOther) {
  for (const milliseconds timeout : kEnds) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Session session(transport, Policy::uniform("int4"), {.timeout = timeout});
      train(session);
      EXPECT_EQ(session.step(), 3U);
    });
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport, {.timeout = timeout});
      std::vector<float> values(100, 1.0F);
      communicator.all_reduce(view(values.data(), values.size()));
      EXPECT_NEAR(values[0], 2.0F, 0.01F);
      communicator.barrier();
    });
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Table table(transport, {.name = "t", .rows = 10, .width = 2, .timeout = timeout});
      table.synchronize();
    });
  }
}

TEST(Timeout, OfAnElasticJobToo) {
  for (const milliseconds timeout : kEnds) {
    const auto all = make_inproc_processes(3);
    const Watchdog watchdog("an elastic job with the longest timeout");
    std::vector<std::jthread> ranks;
    for (const auto& processes : all) {
      ranks.emplace_back([&processes, timeout] {
        Session session(processes, Policy::uniform("int4"), {.timeout = timeout});
        train(session);
        EXPECT_EQ(session.step(), 3U);
        EXPECT_EQ(session.world_size(), 3);
      });
    }
  }
}

TEST(Timeout, OneThatEndsAtOnceIsRefused) {
  for (const int count : {0, -5}) {
    const milliseconds timeout(count);
    const auto refused = [&](const std::string& whose, auto&& call) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(whose));
      EXPECT_THAT(error.what(), HasSubstr("the timeout is " + std::to_string(count) + " ms; it must be above 0"));
    };
    const auto transport = make_inproc_world(1)[0];
    refused("Session", [&] { Session(transport, Policy(), {.timeout = timeout}); });
    refused("Session", [&] { Session(make_inproc_processes(1)[0], Policy(), {.timeout = timeout}); });
    refused("Communicator", [&] { Communicator(transport, {.timeout = timeout}); });
    refused("table", [&] { Table(transport, {.name = "t", .rows = 10, .width = 2, .timeout = timeout}); });
  }
}

}  // namespace
}  // namespace gradwire::test
