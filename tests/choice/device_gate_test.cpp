// Plays the ranks of a communicator of devices, each with a gate of its own, in one thread: times are scripted, come
// late, are lost, and differ between ranks, and still all ranks take the same ways.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "choice/device_gate.hpp"

namespace gradwire::choice {
namespace {

constexpr std::uint64_t kApart = 64;  // calls between two exchanges
constexpr std::uint64_t kMiB = 1 << 20;

ChoiceClass gate_class(std::uint64_t bytes) {
  return {.function = Function::nccl_all_reduce, .dtype = DType::f32, .size = size_class(bytes)};
}

struct Script {
  int ranks = 3;
  std::size_t ways = 2;
  /// Seconds of a call in which no rank waits for a late one.
  std::function<double(std::uint64_t call, Way way, int rank)> seconds = [](std::uint64_t, Way, int) { return 1e-3; };
  std::uint64_t late = 20;  // calls until a rank learns a time
  std::function<bool(std::uint64_t call, int rank)> lost = [](std::uint64_t, int) { return false; };
  std::function<bool(std::uint64_t bytes, int rank)> has_memory = [](std::uint64_t, int) { return true; };
  std::size_t calls_in_step = 0;                                  // 0: steps are not known
  std::function<double(Way way)> rest = [](Way) { return 0.0; };  // seconds of a step beside its calls
};

class GateWorld {
 public:
  explicit GateWorld(Script script) : script_(std::move(script)), ranks_(static_cast<std::size_t>(script_.ranks)) {}

  Way call(std::uint64_t bytes = kMiB) {
    ++calls_;
    learn();
    if (calls_ % kApart == 0) {
      exchange();
    }
    if (script_.calls_in_step > 0 && (calls_ - 1) % script_.calls_in_step == 0) {
      begin_step();
    }
    std::array<double, 2> longest{};
    std::optional<DeviceGate::Turn> first;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto turn = ranks_[rank].gate.next(gate_class(bytes), bytes, script_.ways);
      if (!first) {
        first = turn;
      }
      EXPECT_EQ(turn.way, first->way) << "call " << calls_ << ", rank " << rank;
      EXPECT_EQ(turn.trial.has_value(), first->trial.has_value()) << "call " << calls_ << ", rank " << rank;
      const int number = static_cast<int>(rank);
      const double in_use = script_.seconds(calls_, turn.way, number);
      const double rival = turn.trial ? script_.seconds(calls_, turn.trial->rival, number) : 0;
      longest = {std::max(longest[0], in_use), std::max(longest[1], rival)};
      if (turn.trial && first->trial) {
        EXPECT_EQ(turn.trial->rival, first->trial->rival);
        EXPECT_EQ(turn.trial->rival_first, first->trial->rival_first);
        if (!script_.lost(calls_, number)) {
          ranks_[rank].late.push_back({calls_ + script_.late, [=, &gate = ranks_[rank].gate] {
                                         gate.timed(turn.trial->number, in_use, rival);
                                       }});
        }
      }
    }
    total += longest[0];
    probes += longest[1];
    library += longest_of(0);
    step_seconds_ += longest[0] + longest[1];
    latest = *first;
    return first->way;
  }
  Way calls(std::uint64_t count, std::uint64_t bytes = kMiB) {
    Way way = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      way = call(bytes);
    }
    return way;
  }
  [[nodiscard]] DeviceGate& gate(std::size_t rank = 0) { return ranks_[rank].gate; }
  [[nodiscard]] std::uint64_t made() const { return calls_; }
  [[nodiscard]] std::uint64_t trials() const { return ranks_[0].gate.trials(); }

  double total = 0;    // seconds of the calls for the job
  double probes = 0;   // seconds of the rivals' calls
  double library = 0;  // seconds, had all calls been the library's
  DeviceGate::Turn latest;

 private:
  struct Late {
    std::uint64_t at;
    std::function<void()> learn;
  };
  struct Rank {
    DeviceGate gate;
    std::deque<Late> late;
  };

  double longest_of(Way way) const {
    double longest = 0;
    for (int rank = 0; rank < script_.ranks; ++rank) {
      longest = std::max(longest, script_.seconds(calls_, way, rank));
    }
    return longest;
  }
  void learn() {
    for (Rank& rank : ranks_) {
      while (!rank.late.empty() && rank.late.front().at <= calls_) {
        rank.late.front().learn();
        rank.late.pop_front();
      }
    }
  }
  // The result of an exchange counts at the next one.
  void exchange() {
    std::vector<std::uint32_t> largest(DeviceGate::kWords, 0);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!said_.empty()) {
        ranks_[rank].gate.heard(said_);
      }
      std::vector<std::uint32_t> words(DeviceGate::kWords);
      ranks_[rank].gate.say(words, [&](const DeviceGate::Asked& asked) {
        return script_.has_memory(*asked.sizes.rbegin(), static_cast<int>(rank));
      });
      for (std::size_t i = 0; i < words.size(); ++i) {
        largest[i] = std::max(largest[i], words[i]);
      }
    }
    said_ = largest;
  }
  void begin_step() {
    const double seconds = step_seconds_ + script_.rest(latest.way);
    for (Rank& rank : ranks_) {
      const std::uint64_t step = rank.gate.begin_step();
      if (step > 0) {
        rank.late.push_back({calls_ + script_.late, [=, &gate = rank.gate] { gate.step_took(step - 1, seconds); }});
      }
    }
    step_seconds_ = 0;
  }

  Script script_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> said_;
  std::uint64_t calls_ = 0;
  double step_seconds_ = 0;
};

auto ratio_of(double ratio) {
  return [ratio](std::uint64_t, Way way, int) { return way == 0 ? 1e-3 : 1e-3 * ratio; };
}

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
  EXPECT_LT(world.total + world.probes, world.library);
}

// Mutations tried, each fails here: adopted below 1.0; a comparison is not put off; a slow rival is tried as often.
TEST(DeviceGate, AWayThatIsNotClearlyFasterIsNeverTaken) {
  std::uint64_t trials = 0;
  for (const double ratio : {0.98, 1.0, 1.3, 12.0}) {
    GateWorld world({.seconds = ratio_of(ratio)});
    for (int i = 0; i < 40000; ++i) {
      ASSERT_EQ(world.call(), 0) << ratio;
    }
    EXPECT_DOUBLE_EQ(world.total, world.library);
    EXPECT_LE(world.gate().trials(), 0.03 * 40000) << ratio;
    EXPECT_LE(world.probes, 0.02 * std::max(1.0, ratio / 5) * world.library) << ratio;
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
    const double gained = world.library / (world.total + world.probes);
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
  EXPECT_LT(world.total + world.probes, 0.65 * world.library);
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
  EXPECT_LE(world.total, world.library + 0.2e-3 * 1400) << "it costs no more than the calls until it was noticed";

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
