// Tests how a session uses the comparison of its ranks, and GRADWIRE_SLOW.
#include "slow_session.hpp"

#include "tests/support/error_of.hpp"

namespace gradwire::test {
namespace {

// A busy machine may keep a thread from its core for a quarter of a second, which is rightly named: then the test runs
// again.
TEST(SlowSession, AHealthyJobNamesNobody) {
  constexpr int kRuns = 4;
  std::string said = "nothing ran";
  for (int i = 0; i < kRuns && !said.empty(); ++i) {
    said = joined(run({}));
  }
  EXPECT_EQ(said, "");
}

// If comparisons take long, as under a sanitizer, the second one is late.
TEST(SlowSession, LateComputeIsNamedOfTwo) {
  Job job = late(2, 0);
  job.steps = 1000;
  job.until_named = true;
  expect_only(run(job), "rank 0", "late compute");
}

TEST(SlowSession, OffNamesNobody) {
  const Environment off("off");
  EXPECT_EQ(joined(run(late(2, 0))), "");
}

// Runs sessions of ranks, each with a setting of its own.
std::vector<std::string> run_told(const std::vector<const char*>& told, int steps) {
  const Lines lines(": ");
  const auto world = make_inproc_world(static_cast<int>(told.size()));
  std::vector<std::unique_ptr<Session>> sessions;
  for (const char* value : told) {
    const Environment environment(value);
    sessions.push_back(std::make_unique<Session>(world[sessions.size()], Policy::uniform("int8")));
  }
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(100'000, 1.0F);
    Session& session = *sessions[static_cast<std::size_t>(transport->rank())];
    const TensorId id = session.add("values", view(values.data(), values.size()));
    for (int step = 0; step < steps; ++step) {
      std::this_thread::sleep_for(milliseconds(transport->rank() == 0 ? 15 : 5));
      session.ready(id);
      session.finish();
    }
  });
  return Lines::take();
}

// A launcher does not always pass the environment on. If each rank followed its own value, ranks that compare would
// wait for ranks that do not.
TEST(SlowSession, RanksThatWereToldDifferentThingsDoWhatAllCan) {
  auto said = run_told({"20%", "off", "10%"}, 20);
  ASSERT_EQ(said.size(), 1U) << joined(said);
  EXPECT_NE(said[0].find("GRADWIRE_SLOW is 0.2 on rank 0 and off on rank 1: slow ranks are not looked for"),
            std::string::npos)
      << said[0];
  said = run_told({"90%", "10%"}, 60);
  ASSERT_EQ(said.size(), 1U) << joined(said);  // rank 0 is late by two thirds of a step
  EXPECT_NE(said[0].find("rank 1: slow is a rank that others wait for above 0.9 of a step"), std::string::npos)
      << said[0];
  said = run_told({"10%", "10%"}, 110);
  ASSERT_EQ(said.size(), 1U) << joined(said);
  EXPECT_NE(said[0].find("of a session of 2 ranks: rank 0 is slow"), std::string::npos) << said[0];
}

// The two sessions order the ranks differently: rank 0 of the second one is the late rank of the first.
TEST(SlowSession, TwoSessionsOfAProcessCompareEachForItself) {
  const Lines lines;
  const auto one = make_inproc_world(2);
  const auto other = make_inproc_world(2);
  std::atomic<int> steps = 400;  // or until a rank is named
  run_ranks(one, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(10'000, 1.0F);
    Session first(transport, Policy::uniform("int8"));
    Session second(other[static_cast<std::size_t>(1 - transport->rank())], Policy::uniform("int8"));
    const TensorId a = first.add("values", view(values.data(), values.size()));
    const TensorId b = second.add("values", view(values.data(), values.size()));
    for (int step = 0; step < steps; ++step) {
      std::this_thread::sleep_for(milliseconds(transport->rank() == 1 ? 20 : 5));
      first.ready(a);
      first.finish();
      second.ready(b);
      second.finish();
      if (transport->rank() == 0 && steps > step + 3 && !Lines::take().empty()) {
        steps = step + 3;  // no rank is more than a step ahead
      }
    }
  });
  const auto named = Lines::take();
  ASSERT_FALSE(named.empty());  // the second session's ranks have met in the first one
  EXPECT_NE(named[0].find("rank 1 is slow"), std::string::npos) << joined(named);
}

// Ranks may call finish() of two sessions in different orders, so no rank may wait in one session for a rank that calls
// it later. Mutation tried: ranks wait in the step that asks.
TEST(SlowSession, SessionsMayEndTheirStepsInAnyOrder) {
  constexpr std::chrono::seconds kTimeout{5};
  const auto one = make_inproc_world(2);
  const auto other = make_inproc_world(2);
  run_ranks(one, [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    std::vector<float> values(10'000, 1.0F);
    std::vector<float> others(10'000, 1.0F);  // both sessions have steps under way
    Session first(one[rank], Policy::uniform("int8"), {.timeout = kTimeout});
    Session second(other[rank], Policy::uniform("int8"), {.timeout = kTimeout});
    const TensorId a = first.add("values", view(values.data(), values.size()));
    const TensorId b = second.add("values", view(others.data(), others.size()));
    for (int step = 0; step < 400; ++step) {
      first.ready(a);
      second.ready(b);
      (rank == 0 ? first : second).finish();
      (rank == 0 ? second : first).finish();
    }
    EXPECT_GE(first.statistics().comparisons, 1U);
    EXPECT_GE(second.statistics().comparisons, 1U);
  });
}

// One rank's numbers of the ninth step are in flight, and the other's never come.
TEST(SlowSession, ARankThatEndsInsteadOfComparingEndsTheOther) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(10'000, 1.0F);
    Session session(transport, Policy::uniform("int8"), {.timeout = std::chrono::seconds(20)});
    const TensorId id = session.add("values", view(values.data(), values.size()));
    for (int step = 0; step < 8; ++step) {
      session.ready(id);
      session.finish();
    }
    const Ticket ticket = session.ready(id);
    if (transport->rank() == 0) {
      session.finish();
      session.ready(id);
      const Error error = error_of([&] { session.finish(); });
      EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
      return;
    }
    session.wait(ticket);
    std::this_thread::sleep_for(milliseconds(200));
  });
}

// Resets the counts after every step, and checks the coding time of rank 0 in the first comparison.
void compare_under_resets() {
  ::setenv("GRADWIRE_LOG", "debug", 1);  // NOLINT(concurrency-mt-unsafe): no other thread yet
  const Lines lines(": rank 0 step ", LogLevel::debug);
  double codec = 0;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(400'000, 1.0F);
    Session session(transport, Policy::uniform("int8"));
    const TensorId id = session.add("values", view(values.data(), values.size()));
    for (int step = 0; step < 10; ++step) {
      session.ready(id);
      session.finish();
      const Statistics totals = session.statistics().all();
      if (transport->rank() == 0 && step >= 1 && step <= 8) {
        codec += totals.encode_seconds + totals.decode_seconds;
      }
      EXPECT_EQ(session.statistics().comparisons, step == 9 ? 1U : 0U);
      session.reset_statistics();
      EXPECT_EQ(session.statistics().comparisons, 0U);
      EXPECT_EQ(session.statistics().comparison_seconds, 0);
      EXPECT_EQ(session.statistics().all().calls, 0U);
    }
  });
  const auto told = Lines::take();
  ASSERT_EQ(told.size(), 1U) << joined(told);
  const std::string what = ", codec ";
  const double milliseconds = std::stod(told[0].substr(told[0].find(what) + what.size()));
  EXPECT_NEAR(milliseconds, codec / 8 * 1e3, codec / 8 * 1e3 / 50) << told[0];
}

TEST(SlowSessionDeathTest, ResetsOfStatisticsAreNothingToTheComparison) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // GTEST_FLAG_SET came with 1.12
  const auto child = [] {
    compare_under_resets();
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}

// A wrong setting of a feature that only observes must not end a job.
TEST(SlowSessionDeathTest, WhatItCannotBeIsOneWarning) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const char* value : {"on", "0", "-1", "200%"}) {
    const auto child = [value] {
      const Environment wrong(value);
      const auto world = make_inproc_world(1);
      for (int i = 0; i < 2; ++i) {
        Session session(world[0], Policy{});
        std::vector<float> values(10, 1.0F);
        const TensorId id = session.add("values", view(values.data(), values.size()));
        session.ready(id);
        session.finish();
      }
      std::fputs("done\n", stderr);
      std::_Exit(0);
    };
    EXPECT_EXIT(child(), ::testing::ExitedWithCode(0),
                "^[^\n]*rank 0: warning: GRADWIRE_SLOW is \"" + std::string(value) +
                    "\"[^\n]*Rank 0 is compared with the default, 10% of a step, and the job goes on[^\n]*\ndone\n$");
  }
}

}  // namespace
}  // namespace gradwire::test
