// Tests the choice between passing a call on and compressing it, with invented durations.
#include "choice/auto_call.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

#include "tests/choice/auto_call_world.hpp"

namespace gradwire::choice {
namespace {

using ::testing::ElementsAre;

int changes_of(World& world, std::uint64_t bytes = kBytes) {
  return static_cast<int>(world.auto_call().choices().at(class_of(bytes)).size()) - 1;
}

TEST(AutoCall, DecidesForWhatIsFaster) {
  for (const double compressed : {1.5e-3, 0.7e-3}) {
    World world(3, steady(1e-3, compressed));
    for (int call = 0; call < 80; ++call) {
      world.call();
    }
    EXPECT_TRUE(world.decided());
    EXPECT_EQ(world.call(), compressed < 1e-3 ? 1 : 0);
    EXPECT_THAT(*world.auto_call().compared(class_of(kBytes)), ElementsAre(1e-3, compressed));
  }
}

TEST(AutoCall, PassesWhereCompressionSavesTooLittle) {
  World world(2, steady(1e-3, 0.97e-3));
  for (int call = 0; call < 80; ++call) {
    world.call();
  }
  EXPECT_EQ(world.call(), 0) << "3% are not worth the error";
}

TEST(AutoCall, TakesTheBestOfSeveralCodecs) {
  World world(2, [](std::uint64_t, Way way, int) { return way == 0 ? 4e-3 : way == 1 ? 2e-3 : 1e-3; });
  for (int call = 0; call < 80; ++call) {
    world.call(kBytes, Function::mpi_allreduce, 3);
  }
  EXPECT_EQ(world.call(kBytes, Function::mpi_allreduce, 3), 2);
}

TEST(AutoCall, OneSlowRankCountsForAll) {
  World world(4, [](std::uint64_t, Way way, int rank) { return way == 0 ? 1e-3 : rank == 2 ? 3e-3 : 0.1e-3; });
  for (int call = 0; call < 80; ++call) {
    world.call();
  }
  EXPECT_EQ(world.call(), 0);
}

TEST(AutoCall, WaitingForALateRankIsNoPartOfAComparison) {
  World world(2, steady(1e-3, 0.5e-3));
  world.set_waiting({5e-3, 0});
  for (int call = 0; call < 2000; ++call) {
    world.call();
  }
  EXPECT_EQ(world.call(), 1);
  EXPECT_NEAR(world.auto_call().compared(class_of(kBytes))->at(1), 0.5e-3, 1e-9);
}

TEST(AutoCall, WhatIsExpensiveAndClearIsNotRepeated) {
  World world(2, steady(6, 1.5));
  EXPECT_EQ(world.call(), 0);
  EXPECT_EQ(world.call(), 1);
  EXPECT_TRUE(world.decided());
  EXPECT_EQ(world.trials(), 1U);
}

TEST(AutoCall, TheFirstTrialIsCold) {
  World world(2, [](std::uint64_t call, Way way, int) { return way == 0 ? 1e-3 : call < 1 ? 50e-3 : 0.5e-3; });
  for (int call = 0; call < 80; ++call) {
    world.call();
  }
  EXPECT_NEAR(world.auto_call().compared(class_of(kBytes))->at(1), 0.5e-3, 1e-9);
}

TEST(AutoCall, NoiseDoesNotTurnTheChoiceOver) {
  const unsigned seed = 7;
  std::mt19937 random(seed);
  std::lognormal_distribution<double> noise(0, 0.3);
  World world(2, [&](std::uint64_t, Way way, int) { return (way == 0 ? 1e-3 : 1.4e-3) * noise(random); });
  std::uint64_t compressed = 0;
  for (int call = 0; call < 50'000; ++call) {
    const Way way = world.call();
    compressed += world.decided() ? way : 0;
  }
  EXPECT_EQ(compressed, 0U) << "seed " << seed;
}

TEST(AutoCall, TheOrderTurnsRoundFromTrialToTrial) {
  World world(2, steady(1e-3, 1.05e-3));
  for (std::uint64_t trials = 0; trials < 8;) {
    world.call();
    if (world.turn().trial) {
      EXPECT_EQ(world.turn().passed_first, trials++ % 2 == 0) << trials;
    }
  }
}

TEST(AutoCall, ACompressedClassGetsTheLibrarysSumInEachLaterComparison) {
  World world(2, steady(1e-3, 0.3e-3));
  std::uint64_t trials = 0;
  for (int call = 0; call < 50'000; ++call) {
    const Way way = world.call();
    EXPECT_EQ(way, world.turn().trial || trials < 4 ? 0 : 1) << call;
    trials += world.turn().trial ? 1 : 0;
  }
  EXPECT_GT(trials, 12U) << "it is compared again";
}

// Mutation tried: the limit counts for no class.
TEST(AutoCall, CallsAboveTheLimitOfCopiesPassUntried) {
  World world(2, steady(1, 0.1));
  EXPECT_EQ(world.call(kMostCopied), 0);
  EXPECT_TRUE(world.turn().trial);
  EXPECT_EQ(world.call(kMostCopied), 1);
  for (int call = 0; call < 200; ++call) {
    EXPECT_EQ(world.call(2 * kMostCopied), 0) << "this holds whatever the neighbouring class has shown";
    EXPECT_FALSE(world.turn().trial);
    EXPECT_EQ(world.turn().barred, Reason::untried);
  }
  EXPECT_EQ(world.trials(), 1U);
}

TEST(AutoCall, AClassPassesOnAllRanksWhereOneHasNoMemory) {
  World world(3, steady(1e-3, 0.1e-3));
  world.refuse_copies(2);
  for (int call = 0; call < 300; ++call) {
    EXPECT_EQ(world.call(), 0);
    EXPECT_FALSE(world.turn().trial);
    EXPECT_EQ(world.turn().barred, Reason::untried);
    EXPECT_EQ(world.exchanged(), call == 0) << "once";
  }
  EXPECT_EQ(world.auto_call().compared(class_of(kBytes)), std::nullopt);
}

TEST(AutoCall, AWayThatIsTooFarOffIsNeverChosen) {
  World one(2, steady(1e-3, 0.1e-3));
  one.exclude(1);
  for (int call = 0; call < 300; ++call) {
    EXPECT_EQ(one.call(), 0);
    EXPECT_EQ(one.turn().trial, call == 0);
    EXPECT_EQ(one.turn().barred, call == 0 ? Reason::none : Reason::inaccurate);
  }
  World two(2, [](std::uint64_t, Way way, int) { return way == 0 ? 4e-3 : way == 1 ? 2e-3 : 1e-3; });
  two.exclude(2);
  for (int call = 0; call < 100'000; ++call) {
    EXPECT_NE(two.call(kBytes, Function::mpi_allreduce, 3), 2);
  }
  EXPECT_EQ(two.call(kBytes, Function::mpi_allreduce, 3), 1) << "the other codec is within the bound";
}

TEST(AutoCall, ABarredClassPassesFromThenOn) {
  World world(2, steady(1e-3, 0.1e-3));
  for (int call = 0; call < 80; ++call) {
    world.call();
  }
  EXPECT_EQ(world.call(), 1);
  world.auto_call(0).bar(class_of(kBytes), Reason::inaccurate);
  world.auto_call(1).bar(class_of(kBytes), Reason::inaccurate);
  for (int call = 0; call < 1000; ++call) {
    EXPECT_EQ(world.call(), 0);
  }
}

TEST(AutoCall, FollowsALinkThatChanges) {
  const auto fast = steady(1e-3, 1.4e-3);
  const auto slow = steady(80e-3, 25e-3);
  World world(2, fast);
  const auto calls_until = [&](Way wanted) {
    for (int call = 1; call <= 20'000; ++call) {
      if (world.call() == wanted && world.decided()) {
        return call;
      }
    }
    return 0;
  };
  for (int call = 0; call < 5000; ++call) {
    world.call();
  }
  EXPECT_EQ(world.call(), 0);
  world.set_duration(slow);
  const int to_slow = calls_until(1);
  EXPECT_GT(to_slow, 0);
  EXPECT_LT(to_slow, 100);
  for (int call = 0; call < 5000; ++call) {
    world.call();
  }
  EXPECT_EQ(world.call(), 1);
  world.set_duration(fast);
  const int to_fast = calls_until(0);
  EXPECT_GT(to_fast, 0);
  EXPECT_LT(to_fast, 2000);
}

TEST(AutoCall, ANewSizeBeginsAsItsNeighbourDecided) {
  World world(2, [](std::uint64_t, Way way, int) { return way == 0 ? 10e-6 : 40e-6; });
  for (int call = 0; call < 80; ++call) {
    world.call(64 << 10);
  }
  EXPECT_EQ(world.call(32 << 10), 0);
  EXPECT_TRUE(world.decided()) << "a smaller class that is four times as slow is not compared";
  EXPECT_EQ(world.auto_call().compared(class_of(32 << 10)), std::nullopt);
  world.call(128 << 10);
  EXPECT_FALSE(world.decided()) << "a larger class is compared, since compression may pay";

  World slow(2, [](std::uint64_t, Way way, int) { return way == 0 ? 40e-3 : 10e-3; });
  for (int call = 0; call < 80; ++call) {
    slow.call(1 << 20);
  }
  EXPECT_EQ(slow.call(64 << 20), 1);
  EXPECT_TRUE(slow.decided());
  slow.call(64 << 10);
  EXPECT_FALSE(slow.decided());
  slow.call(64 << 20, Function::mpi_reduce_scatter);
  EXPECT_FALSE(slow.decided()) << "this is another function";
}

TEST(AutoCall, HoldsSoManyClassesAndPassesTheRest) {
  AutoCall auto_call;
  std::size_t tried = 0;
  for (std::uint32_t rule = 0; rule < 2 * AutoCall::kMostClasses; ++rule) {
    ChoiceClass what = class_of(kBytes);
    what.rule = rule;
    if (!auto_call.begin(what, kBytes, 2, [] { return true; }).empty()) {
      auto_call.answer(std::vector<double>{0, -1e-6}, 1e-6);
    }
    const auto turn = auto_call.turn();
    tried += turn.trial ? 1 : 0;
    EXPECT_EQ(turn.way, 0);
    auto_call.measured(1e-3);
  }
  EXPECT_EQ(tried, AutoCall::kMostClasses);
}

// A recorded way without a codec was once an index beyond the policy's list.
TEST(AutoCall, PassesWhereTheRecordKnowsAWayThatIsNone) {
  const ChoiceClass what{.function = Function::mpi_allreduce, .size = 20};
  AutoCall auto_call(Choices{{what, {{0, 200}, {1, 1}}}});
  static_cast<void>(auto_call.begin(what, 1 << 20, 2, [] { return true; }));
  EXPECT_EQ(auto_call.turn().way, 0);
  static_cast<void>(auto_call.begin(what, 1 << 20, 2, [] { return true; }));
  EXPECT_EQ(auto_call.turn().way, 1);
}

TEST(AutoCall, FollowsWhatWasRecorded) {
  World first(2, steady(1e-3, 0.6e-3));
  std::vector<Way> ways;
  for (int call = 0; call < 3000; ++call) {
    first.set_duration(call < 1000 ? steady(1e-3, 0.6e-3) : steady(1e-3, 2e-3));
    ways.push_back(first.call());
  }
  EXPECT_GE(changes_of(first), 2);
  const Choices script = first.auto_call().choices();
  World second(2, steady(1, 1), &script);
  for (const Way way : ways) {
    EXPECT_EQ(second.call(), way);
    EXPECT_FALSE(second.exchanged());
  }
  EXPECT_EQ(second.auto_call().choices(), script);
  EXPECT_EQ(second.call(8 * kBytes), 0) << "no such class was recorded";
}

}  // namespace
}  // namespace gradwire::choice
