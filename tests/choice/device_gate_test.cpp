// Tests the gate over NCCL: whatever times ranks see, all of them take the same ways, and no loss is large.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "choice/device_gate.hpp"
#include "device_gate_world.hpp"

namespace gradwire::choice {
namespace {

TEST(DeviceGate, AFasterWayIsAdoptedAfterOneBlock) {
  GateWorld world({.seconds = ratio_of(0.9)});
  EXPECT_EQ(world.calls(267), 0);
  EXPECT_EQ(world.gate().trials(), 0U) << "eight trials would be more than 3% of so few calls";
  EXPECT_EQ(world.calls(250), 1);
  EXPECT_EQ(world.gate().trials(), DeviceGate::kBlock);
  const auto compared = world.gate().compared(gate_class(kMiB));
  ASSERT_TRUE(compared.has_value());
  EXPECT_NEAR((*compared)[0], 1e-3, 1e-8);
  EXPECT_NEAR((*compared)[1], 0.9e-3, 1e-8);
  const auto& changes = world.gate().choices().at(gate_class(kMiB));
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0], (WayChange{.call = 0, .way = 0}));
  EXPECT_EQ(changes[1].way, 1);
  world.calls(1000);
  EXPECT_LT(world.total + world.probes, world.nccl);
}

// Mutations tried, each fails here: adopted below 1.0; a comparison is not put off; a slow rival is tried as often.
TEST(DeviceGate, AWayThatIsNotClearlyFasterIsNeverTaken) {
  std::uint64_t trials = 0;
  for (const double ratio : {0.98, 1.0, 1.3, 12.0}) {
    GateWorld world({.seconds = ratio_of(ratio)});
    for (int i = 0; i < 40000; ++i) {
      ASSERT_EQ(world.call(), 0) << ratio;
    }
    EXPECT_DOUBLE_EQ(world.total, world.nccl);
    EXPECT_LE(world.gate().trials(), 0.03 * 40000) << ratio;
    EXPECT_LE(world.probes, 0.02 * std::max(1.0, ratio / 5) * world.nccl) << ratio;
    EXPECT_GE(world.gate().trials(), 2 * DeviceGate::kBlock) << "it is compared again";
    if (ratio > 2) {
      EXPECT_LT(world.gate().trials(), trials) << "a slow rival is dear";
    }
    trials = world.gate().trials();
  }
}

// What int8 is expected to gain over NCCL, from NVLink with 8 ranks at 1 MiB to one network card for 8 GPUs.
TEST(DeviceGate, NoExpectedGainOrLossCostsMoreThanThreePercent) {
  for (const double gain : {0.08, 0.15, 0.30, 0.58, 0.91, 1.0, 1.65, 2.2, 3.8}) {
    GateWorld world({.seconds = ratio_of(1 / gain), .calls_in_step = 20, .rest = [](Way) { return 20e-3; }});
    world.calls(20000);
    const double gained = world.nccl / (world.total + world.probes);
    EXPECT_GE(gained, gain > 1 ? 0.9 * gain : 0.97) << gain << ": the first 512 calls are the library's";
  }
}

// Mutations tried: 5% of the calls are trials; trials are not counted.
TEST(DeviceGate, TrialsAreAtMostThreePercentOfTheCallsAtAnyTime) {
  GateWorld world({.ways = 5, .seconds = [](std::uint64_t call, Way way, int) {
                     return 1e-3 * (1 + 0.3 * std::sin(static_cast<double>(call) / 500 + way));
                   }});
  std::uint64_t before = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::uint64_t bytes = kMiB << (i % 3);
    world.call(bytes);
    const std::uint64_t trials = world.gate().trials();
    ASSERT_LE(static_cast<double>(trials), 0.03 * static_cast<double>(world.made())) << world.made();
    ASSERT_LE(trials, before + 1);
    before = trials;
  }
  EXPECT_GE(before, 100U);
}

TEST(DeviceGate, OfSeveralWaysTheFastestWins) {
  GateWorld world({.ways = 4, .seconds = [](std::uint64_t, Way way, int) {
                     return std::array{1e-3, 0.9e-3, 0.5e-3, 0.7e-3}[way];
                   }});
  world.calls(5000);
  EXPECT_EQ(world.call(), 2);
  EXPECT_LT(world.total + world.probes, 0.65 * world.nccl);
}

// Mutation tried: a hopeless way is tried, too.
TEST(DeviceGate, WaysAreTriedInTheOrderOfExpectationAndHopelessOnesNever) {
  GateWorld world({.ways = 4, .seconds = ratio_of(0.98)});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    world.gate(rank).expect(gate_class(kMiB), {1, 1.3, 2.5, 0.4});
  }
  std::vector<Way> tried;
  for (int i = 0; i < 20000; ++i) {
    world.call();
    if (world.latest.trial && (tried.empty() || tried.back() != world.latest.trial->rival)) {
      tried.push_back(world.latest.trial->rival);
    }
  }
  ASSERT_GE(tried.size(), 4U);
  EXPECT_EQ(tried[0], 3);
  EXPECT_EQ(tried[1], 1);
  EXPECT_EQ(std::count(tried.begin(), tried.end(), 2), 0);
}

// Mutations tried: one strike suffices; strikes are never reset; no recheck after an adoption.
TEST(DeviceGate, AWayThatBecomesSlowerIsDroppedAfterTwoComparisons) {
  GateWorld world({.seconds = [](std::uint64_t call, Way way, int) {
    return way == 0 ? 1e-3 : call < 1000 ? 0.8e-3 : 1.2e-3;
  }});
  EXPECT_EQ(world.calls(999), 1);
  EXPECT_EQ(world.calls(300), 1) << "the library was faster once at most";
  world.calls(4000);
  EXPECT_EQ(world.call(), 0);
  EXPECT_EQ(world.gate().choices().at(gate_class(kMiB)).size(), 3U);
  EXPECT_LE(world.total, world.nccl + 0.2e-3 * 1400) << "it costs no more than the calls until it was noticed";

  // Slow in some of the blocks of trials, counted from 0.
  const auto run = [](const std::set<std::uint64_t>& slow) {
    const GateWorld* made = nullptr;
    GateWorld other({.seconds = [&](std::uint64_t, Way way, int) {
      return way == 0 ? 1e-3 : slow.contains((made->trials() - 1) / DeviceGate::kBlock) ? 1.2e-3 : 0.8e-3;
    }});
    made = &other;
    other.calls(6000);
    EXPECT_GE(other.trials(), 5 * DeviceGate::kBlock);
    return other.gate().choices().at(gate_class(kMiB)).size();
  };
  EXPECT_EQ(run({1}), 2U) << "one slow comparison changes nothing";
  EXPECT_EQ(run({1, 3}), 2U) << "two that do not follow upon each other do not either";
  EXPECT_GE(run({1, 2}), 3U);
}

// The slowest rank counts: here the rival is faster on two of three ranks.
TEST(DeviceGate, TheSlowestRankCounts) {
  GateWorld world({.seconds = [](std::uint64_t, Way way, int rank) {
    return way == 0 ? 1e-3 : rank == 1 ? 1.1e-3 : 1e-4;
  }});
  EXPECT_EQ(world.calls(5000), 0);
}

// Mutation tried: a rank without samples says 0.
TEST(DeviceGate, ARankWithoutSamplesPreventsADecision) {
  GateWorld world(
      {.seconds = ratio_of(0.5), .lost = [](std::uint64_t call, int rank) { return rank == 2 && call < 3000; }});
  EXPECT_EQ(world.calls(2900), 0);
  EXPECT_FALSE(world.gate().compared(gate_class(kMiB)).has_value());
  EXPECT_EQ(world.calls(3000), 1) << "the comparison was given up, and made again";
}

TEST(DeviceGate, AHostTwoHundredCallsAheadDecidesLater) {
  GateWorld near({.seconds = ratio_of(0.5), .late = 0});
  GateWorld far({.seconds = ratio_of(0.5), .late = 200});
  near.calls(2000);
  far.calls(2000);
  const std::uint64_t early = near.gate().choices().at(gate_class(kMiB)).at(1).call;
  const std::uint64_t late = far.gate().choices().at(gate_class(kMiB)).at(1).call;
  EXPECT_GE(late, early + 200 - kApart);
  EXPECT_LE(late, early + 200 + kApart);
}

TEST(DeviceGate, ARankWithoutMemoryForCopiesMakesNoTrial) {
  GateWorld world({.seconds = ratio_of(0.5),
                   .has_memory = [](std::uint64_t bytes, int rank) { return rank != 1 || bytes <= kMiB; }});
  for (int i = 0; i < 3000; ++i) {
    world.call(4 * kMiB);
    ASSERT_FALSE(world.latest.trial.has_value());
  }
  EXPECT_EQ(world.latest.barred, Reason::untried);
  world.calls(3000);
  EXPECT_EQ(world.call(), 1) << "smaller calls are another class";

  GateWorld large({.seconds = ratio_of(0.5)});
  EXPECT_EQ(large.calls(3000, 4096 * kMiB), 1) << "memory alone decides";
}

TEST(DeviceGate, MemoryThatComesBackIsUsed) {
  const GateWorld* made = nullptr;
  GateWorld world({.seconds = ratio_of(0.5),
                   .has_memory = [&](std::uint64_t, int rank) { return rank != 1 || made->made() > 3000; }});
  made = &world;
  world.calls(3000);
  EXPECT_EQ(world.latest.barred, Reason::untried);
  EXPECT_EQ(world.trials(), 0U);
  EXPECT_EQ(world.calls(3000), 1);
  EXPECT_EQ(world.latest.barred, Reason::none);
}

// Memory is asked for the sizes that have come. Mutation tried: calls of other sizes are tried, too.
TEST(DeviceGate, CallsOfSizesThatNoRankWasAskedForGetNoTrial) {
  GateWorld world({.seconds = ratio_of(0.5)});
  world.calls(330, kMiB + 8);
  ASSERT_TRUE(world.gate().needs_memory());
  while (!world.latest.trial) {
    world.call(kMiB + 8);
  }
  for (int i = 0; i < 40; ++i) {
    world.call(kMiB + 4);
    ASSERT_FALSE(world.latest.trial.has_value()) << "a smaller call, but not one that was asked for";
  }
  world.call(kMiB + 8);
  EXPECT_TRUE(world.latest.trial.has_value());
}

// Mutation tried: the comparison of a barred class goes on.
TEST(DeviceGate, ABarredClassPassesAndOthersAreCompared) {
  GateWorld world({.seconds = ratio_of(0.5)});
  EXPECT_EQ(world.calls(2000), 1);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    world.gate(rank).bar(gate_class(kMiB), Reason::no_memory);
  }
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(world.call(), 0);
    ASSERT_FALSE(world.latest.trial.has_value());
  }
  EXPECT_EQ(world.latest.barred, Reason::no_memory);
  while (!world.latest.trial) {
    world.call(4 * kMiB);
  }
  for (std::size_t rank = 0; rank < 3; ++rank) {
    world.gate(rank).bar(gate_class(4 * kMiB), Reason::no_memory);
  }
  EXPECT_FALSE(world.gate().needs_memory()) << "in the middle of its trials";
  world.call(4 * kMiB);
  EXPECT_FALSE(world.latest.trial.has_value());
  EXPECT_EQ(world.calls(3000, 16 * kMiB), 1);
}

TEST(DeviceGate, AClassThatEndsMakesRoomForOthers) {
  GateWorld world({.seconds = ratio_of(0.5)});
  world.calls(330);
  EXPECT_TRUE(world.gate().needs_memory());
  EXPECT_EQ(world.calls(20000, 4 * kMiB), 1) << "the first class never comes again";
}

// Mutation tried: steps are not compared.
TEST(DeviceGate, StepsDecideWhereTheyAreKnown) {
  const auto run = [](double rest_of_compressed) {
    GateWorld world({.seconds = ratio_of(0.7), .calls_in_step = 10, .rest = [=](Way way) {
                       return way == 0 ? 20e-3 : rest_of_compressed;
                     }});
    std::uint64_t compressed = 0;
    for (int i = 0; i < 6000; ++i) {
      compressed += world.call() == 1 ? 1 : 0;
    }
    return compressed;
  };
  EXPECT_GE(run(20e-3), 5300U);
  EXPECT_GE(run(22e-3), 5300U) << "a step of 30 ms takes 29";
  const std::uint64_t slower = run(24e-3);  // a step of 30 ms takes 31, although its calls are faster
  EXPECT_GT(slower, 100U) << "it was adopted";
  EXPECT_LT(slower, 2000U) << "and dropped, each time after two medians";
}

TEST(DeviceGate, AStepBehindABreakDoesNotFollowUponTheLatestOne) {
  DeviceGate gate;
  const std::uint64_t first = gate.begin_step();
  EXPECT_EQ(gate.begin_step(), first + 1);
  gate.forget_steps();
  gate.forget_steps();
  EXPECT_EQ(gate.begin_step(), first + 3);
}

TEST(DeviceGate, WithoutStepsTheCallsDecide) {
  GateWorld world({.seconds = ratio_of(0.7), .calls_in_step = 0, .rest = [](Way way) { return way == 0 ? 0.0 : 1.0; }});
  EXPECT_EQ(world.calls(3000), 1);
}

TEST(DeviceGate, FewCallsStayTheLibrarys) {
  GateWorld world({.seconds = ratio_of(0.1)});
  EXPECT_EQ(world.calls(260), 0);
  EXPECT_EQ(world.gate().trials(), 0U);
}

// Times are random on every rank, and some are lost; the expectations of GateWorld::call() hold at each of the calls.
TEST(DeviceGate, RanksThatSeeDifferentTimesTakeTheSameWays) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 6; ++round) {
    std::uniform_real_distribution<double> share(0, 1);
    const auto draw = [&] { return share(random); };
    Script script;
    script.ranks = 2 + static_cast<int>(random() % 4);
    script.ways = 2 + random() % 3;
    script.late = random() % 250;
    script.calls_in_step = random() % 2 == 0 ? 0 : 1 + random() % 30;
    script.seconds = [&](std::uint64_t, Way way, int) { return 1e-3 * (0.6 + 0.8 * draw() - 0.05 * way); };
    script.lost = [&](std::uint64_t, int) { return draw() < 0.1; };
    script.has_memory = [&](std::uint64_t, int) { return draw() < 0.9; };
    GateWorld world(script);
    std::size_t changes = 0;
    for (int i = 0; i < 8000; ++i) {
      world.call(kMiB << (random() % 4));
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
    for (const auto& [what, ways] : world.gate().choices()) {
      changes += ways.size();
    }
    for (int rank = 1; rank < script.ranks; ++rank) {
      EXPECT_EQ(world.gate(static_cast<std::size_t>(rank)).choices(), world.gate().choices());
    }
    EXPECT_GT(changes, 0U);
  }
}

}  // namespace
}  // namespace gradwire::choice
