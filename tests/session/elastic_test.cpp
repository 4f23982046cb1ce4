// Tests ranks that end at any time while the others go on: steps are delivered on all of them or on none, and nothing
// remains of a step that is made again.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "elastic_deaths.hpp"
#include "elastic_kinds.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

constexpr std::int64_t kMoments = std::max(2, 16 / kStepShare);

// Mutations tried, each fails here: parameters are written before the step counts; sync_parameters() does the same.
TEST(Elastic, ADeathAtAnyMomentCostsOneStepAndLeavesNothingBehind) {
  for_each_at_once(std::span(kPolicies).subspan(environment_int("GRADWIRE_KIND", 0)), [](const Kind& kind) {
    SCOPED_TRACE(kind.policy);
    expect_a_death_costs_one_step(kind.plan(), kMoments);
  });
}

TEST(Elastic, ASilentRankIsLeftOutAndLearnsIt) {
  const auto began = std::chrono::steady_clock::now();
  const std::vector<Fate> fates =
      run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n[elastic]\nsuspect = \"2s\"\n",
           .silent_after = {{1, {60, milliseconds(4000)}}},
           .errors = {ErrorCode::expelled}});
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 2, 3}));
  ASSERT_TRUE(fates[1].error);
  EXPECT_EQ(fates[1].error->code(), ErrorCode::expelled);
  EXPECT_NE(std::string(fates[1].error->what()).find("rank 1"), std::string::npos) << fates[1].error->what();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30)) << "nobody waited for a timeout";
  ASSERT_EQ(fates[0].changes.size(), 1U);
  EXPECT_EQ(fates[0].changes[0].lost, std::vector<int>{1});
  EXPECT_EQ(fates[0].changes[0].lost_names, std::vector<std::string>{"rank 1 of the start"});
  expect_equal(fates[0], fates[2], false);
  expect_equal(fates[0], fates[3], false);
}

// A rank's own mistake ends that rank alone.
TEST(Elastic, ARankThatErrsLeaves) {
  const std::vector<Fate> fates = run({.errors = {ErrorCode::invalid_argument}, .forgets_a_tensor = 2});
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 3}));
  ASSERT_TRUE(fates[2].error);
  EXPECT_EQ(fates[2].error->code(), ErrorCode::invalid_argument);
  ASSERT_EQ(fates[0].first, std::vector<std::uint64_t>{3});
  expect_equal(fates[0], fates[3], false);
}

// Three ranks are no whole nodes of two, so their world has no plan, and each rank that enters it ends with an error. A
// rank that is late finds the others gone and may go on alone. Under AddressSanitizer this also shows whether the
// membership's thread calls into the engine that was given up: run it several times, since that depends on timing.
TEST(Elastic, AWorldWithoutAPlanEndsItsRanksWithAnError) {
  for (std::int64_t moment = 40; moment < 130; moment += 20) {
    const std::vector<Fate> fates =
        run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n[tier]\nranks_per_node = 2\n",
             .dies_after = {{3, moment}},
             .errors = {ErrorCode::invalid_argument, ErrorCode::too_few, ErrorCode::expelled, ErrorCode::aborted,
                        ErrorCode::timeout, ErrorCode::transport}});
    std::size_t named = 0;
    for (const Id id : {0U, 1U, 2U}) {
      named += fates[id].error && std::string(fates[id].error->what()).find("ranks_per_node") != std::string::npos;
    }
    EXPECT_GE(named, 1U) << "rank 3 died after operation " << moment;
  }
}

TEST(Elastic, TooFewRanksEndTheJob) {
  const std::vector<Fate> fates =
      run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n[elastic]\nmin_ranks = 4\n",
           .dies_after = {{0, 60}},
           .errors = {ErrorCode::too_few}});
  EXPECT_TRUE(survivors_of(fates).empty());
  for (const Id id : {1, 2, 3}) {
    ASSERT_TRUE(fates[id].error);
    EXPECT_EQ(fates[id].error->code(), ErrorCode::too_few);
    // The text names 3 ranks, or fewer if another one has left for this reason by then.
    EXPECT_NE(std::string(fates[id].error->what()).find(" ranks is less than [elastic] min_ranks, 4"),
              std::string::npos);
  }
}

TEST(Elastic, OneRankIsLeftOfTwo) {
  const std::vector<Fate> fates = run({.policy = kPolicies[2].policy, .dies_after = {{0, 40}}}, 2);
  EXPECT_EQ(survivors_of(fates), std::vector<Id>{1});
  EXPECT_EQ(fates[1].world_size, 1);
}

TEST(Elastic, ThePlanSaysWhatItCosts) {
  std::vector<float> gradient(10);
  Session session(make_inproc_processes(1)[0],
                  Policy::parse("[elastic]\nsuspect = \"2s\"\nmin_ranks = 1\nreplicate = \"7 steps\"\n"));
  session.add("t", view(gradient.data(), gradient.size()));
  const std::string text = session.explain();
  for (const char* part : {"silent ones after 2s", "down to 1 ranks", "every 7 steps, as bf16"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

// Mutation tried: without throw_if_left(), the process waits for a world, and is then alone in one.
TEST(Elastic, WhoGaveUpIsToldSoEveryTimeAndAtOnce) {
  const Watchdog watchdog("who gave up");
  for (const bool by_abort : {true, false}) {
    const auto processes = make_inproc_processes(3);
    std::vector<ErrorCode> told;
    std::chrono::steady_clock::duration took{};
    std::vector<std::thread> threads;
    for (const auto& one : processes) {
      threads.emplace_back([&, one] {
        std::vector<float> gradient(1000, 1.0F);
        Session session(one,
                        Policy::parse("[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n[elastic]\nsuspect = \"20s\"\n"));
        const TensorId id = session.add("t", view(gradient.data(), gradient.size()));
        while (session.step() < 10) {
          if (one->self() == 1 && session.step() == 5) {
            break;
          }
          session.ready(id);
          session.finish();
        }
        if (one->self() != 1) {
          EXPECT_EQ(session.world_size(), 2);
          return;
        }
        if (by_abort) {
          session.abort("it is over");
        } else {
          told.push_back(error_of([&] { session.finish(); }).code());  // no tensor is ready
        }
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 3; ++i) {
          told.push_back(error_of([&] {
                           session.ready(id);
                           session.finish();
                         }).code());
          told.push_back(error_of([&] { session.sync_parameters(); }).code());
        }
        took = std::chrono::steady_clock::now() - begin;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    std::vector<ErrorCode> expected(6, ErrorCode::aborted);
    if (!by_abort) {
      expected.insert(expected.begin(), ErrorCode::invalid_argument);
    }
    EXPECT_EQ(told, expected) << "by abort: " << by_abort;
    for (const auto& one : processes) {  // elastic_main() would end with 0
      EXPECT_EQ(one->success_denied().has_value(), one->self() == 1) << one->self();
    }
    EXPECT_LT(took, std::chrono::seconds(10)) << "it waited for others";
  }
}

// The exception may be caught, and the program may end as if all were well. Mutation tried: nothing is said if an
// exception ends the session.
TEST(Elastic, ASessionThatAnExceptionEndsDeniesSuccess) {
  for (const bool by_exception : {false, true}) {
    const auto process = make_inproc_processes(1).front();
    const auto train = [&] {
      std::vector<float> gradient(100, 1.0F);
      Session session(process, Policy());
      const TensorId id = session.add("t", view(gradient.data(), gradient.size()));
      session.ready(id);
      session.finish();
      if (by_exception) {
        throw std::runtime_error("of the program");
      }
    };
    if (by_exception) {
      EXPECT_THROW(train(), std::runtime_error);
    } else {
      train();
    }
    EXPECT_EQ(process->success_denied().has_value(), by_exception);
  }
}

TEST(Elastic, TheWorldOfAPlainSessionNeverChanges) {
  Session plain(make_inproc_world(1)[0], Policy());
  EXPECT_EQ(error_of([&] { plain.on_world_change([](const WorldChange&) {}); }).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace gradwire::test
