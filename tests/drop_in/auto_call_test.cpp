// The choice between passing a call on and compressing it: over durations that were recorded, and over invented ones.
// Each rank of a communicator is an AutoCall, all in one thread; they get their answers together.
#include "drop_in/auto_call.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gradwire::drop_in {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kBytes = 1 << 20;
constexpr double kExchange = 5e-6;

ChoiceClass class_of(std::uint64_t bytes, Function function = Function::mpi_allreduce) {
  return {.function = function, .dtype = DType::f32, .size = size_class(bytes)};
}

// Ranks that make the same calls. `duration(call, way, rank)` is that of a call in which nobody waits for a late rank.
class World {
 public:
  using Duration = std::function<double(std::uint64_t call, Way way, int rank)>;

  World(int ranks, Duration duration, const Choices* script = nullptr) : duration_(std::move(duration)) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto_calls_.push_back(script == nullptr ? std::make_unique<AutoCall>() : std::make_unique<AutoCall>(*script));
    }
  }

  // The way of the job's result, the same on every rank.
  Way call(std::uint64_t bytes = kBytes, Function function = Function::mpi_allreduce, std::size_t ways = 2) {
    exchanged_ = exchange(class_of(bytes, function), bytes, ways);
    first_ = auto_calls_[0]->turn();
    for (std::size_t rank = 1; rank < auto_calls_.size(); ++rank) {
      const AutoCall::Turn turn = auto_calls_[rank]->turn();
      EXPECT_EQ(turn.way, first_.way);
      EXPECT_EQ(turn.timed, first_.timed);
      EXPECT_EQ(turn.trial, first_.trial);
      EXPECT_EQ(turn.library_first, first_.library_first);
      EXPECT_EQ(turn.left == nullptr, first_.left == nullptr);
      EXPECT_EQ(turn.left == nullptr ? 0 : *turn.left, first_.left == nullptr ? 0 : *first_.left);
      EXPECT_TRUE(turn.left == nullptr || *turn.left == 0 || turn.way == 0) << "only what passes need not be asked for";
    }
    asked_ += first_.timed || first_.trial ? 1 : 0;
    if (first_.trial) {
      EXPECT_EQ(first_.way, 0) << "the job gets the library's sum";
      make_trial(ways);
    } else {
      double longest = 0;
      for (std::size_t rank = 0; rank < auto_calls_.size(); ++rank) {
        const double seconds = duration_(calls_, first_.way, static_cast<int>(rank));
        longest = std::max(longest, seconds);
        if (first_.timed) {
          auto_calls_[rank]->measured(seconds + (exchanged_ ? 0 : late_[rank]));
        }
      }
      seconds_ += longest + (exchanged_ ? kExchange : 0);
    }
    ++calls_;
    return first_.way;
  }

  // A rank that has no memory for copies from now on.
  void refuse_copies(std::size_t rank) { refuses_ = rank; }
  // From now on a way is too far from the library's sum.
  void exclude(Way way) { excluded_.insert(way); }
  // From now on a rank waits so long in calls before which ranks do not synchronise.
  void set_waiting(std::vector<double> seconds) { late_ = std::move(seconds); }
  void set_duration(Duration duration) { duration_ = std::move(duration); }
  [[nodiscard]] AutoCall& auto_call(std::size_t rank = 0) { return *auto_calls_[rank]; }
  [[nodiscard]] bool exchanged() const { return exchanged_; }
  [[nodiscard]] bool decided() const { return first_.decided; }
  [[nodiscard]] const AutoCall::Turn& turn() const { return first_; }
  [[nodiscard]] std::uint64_t trials() const { return trials_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] std::uint64_t asked() const { return asked_; }

 private:
  bool exchange(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways) {
    std::vector<double> worst;
    for (std::size_t rank = 0; rank < auto_calls_.size(); ++rank) {
      const auto question = auto_calls_[rank]->begin(what, bytes, ways, [&] { return !refuses_ || *refuses_ != rank; });
      worst.resize(std::max(worst.size(), question.size()), -INFINITY);
      EXPECT_EQ(question.size(), worst.size());
      for (std::size_t i = 0; i < question.size(); ++i) {
        worst[i] = std::max(worst[i], question[i]);
      }
    }
    for (const auto& auto_call : auto_calls_) {
      if (!worst.empty()) {
        auto_call->answer(worst, kExchange);
      }
    }
    return !worst.empty();
  }

  // The slowest rank counts, each way.
  void make_trial(std::size_t ways) {
    ++trials_;
    std::vector<double> worst(ways, 0);
    for (std::size_t way = 0; way < ways; ++way) {
      for (std::size_t rank = 0; rank < auto_calls_.size(); ++rank) {
        worst[way] = std::max(worst[way], duration_(calls_, static_cast<Way>(way), static_cast<int>(rank)));
      }
      seconds_ += worst[way];
      worst[way] = excluded_.contains(static_cast<Way>(way)) ? INFINITY : worst[way];
    }
    const double copying = kCopying * worst[0];
    seconds_ += 3 * kExchange + copying;
    for (const auto& auto_call : auto_calls_) {
      auto_call->concluded(worst, copying);
    }
  }

  static constexpr double kCopying = 0.05;
  Duration duration_;
  std::vector<std::unique_ptr<AutoCall>> auto_calls_;
  std::vector<double> late_ = std::vector<double>(64, 0.0);
  std::uint64_t calls_ = 0;
  std::uint64_t asked_ = 0;
  double seconds_ = 0;
  bool exchanged_ = false;
  std::optional<std::size_t> refuses_;
  std::set<Way> excluded_;
  std::uint64_t trials_ = 0;
  AutoCall::Turn first_;
};

World::Duration steady(double passed, double compressed) {
  return [=](std::uint64_t, Way way, int) { return way == 0 ? passed : compressed; };
}

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

// Whatever noise does to single calls.
TEST(AutoCall, AFirstComparisonMakesAtMostElevenCallsTwice) {
  std::uint64_t most = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> noise(0, 1);
    World world(2, [&](std::uint64_t, Way, int) { return 1e-3 * noise(random); });
    do {
      world.call();
    } while (!world.decided());
    EXPECT_LE(world.trials(), 11U) << "seed " << seed;
    most = std::max(most, world.trials());
  }
  EXPECT_EQ(most, 11U);
}

TEST(AutoCall, TheOrderTurnsRoundFromTrialToTrial) {
  World world(2, steady(1e-3, 1.05e-3));
  for (std::uint64_t trials = 0; trials < 8;) {
    world.call();
    if (world.turn().trial) {
      EXPECT_EQ(world.turn().library_first, trials++ % 2 == 0) << trials;
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
    EXPECT_EQ(world.call(2 * kMostCopied), 0) << "whatever its neighbour has shown";
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

TEST(AutoCall, ComparisonsCostLittle) {
  for (const double passed : {1.4e-6, 15e-6, 0.7e-3, 30e-3}) {
    for (const double times : {1.05, 1.5, 14.0}) {
      World world(2, steady(passed, passed * times));
      for (int call = 0; call < 80; ++call) {
        world.call();
      }
      const double decided = world.seconds();
      const std::uint64_t first = world.trials();
      constexpr int kCalls = 200'000;
      for (int call = 0; call < kCalls; ++call) {
        world.call();
      }
      const double cost = (world.seconds() - decided) / (kCalls * passed) - 1;
      EXPECT_LE(cost, 0.005) << passed << " s, " << times << " times";
      EXPECT_GT(world.trials(), first) << "it is compared again now and then: " << passed << " s, " << times
                                       << " times";
    }
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
  EXPECT_TRUE(world.decided()) << "smaller, and four times as slow above: not compared";
  EXPECT_EQ(world.auto_call().compared(class_of(32 << 10)), std::nullopt);
  world.call(128 << 10);
  EXPECT_FALSE(world.decided()) << "larger: compression may pay";

  World slow(2, [](std::uint64_t, Way way, int) { return way == 0 ? 40e-3 : 10e-3; });
  for (int call = 0; call < 80; ++call) {
    slow.call(1 << 20);
  }
  EXPECT_EQ(slow.call(64 << 20), 1);
  EXPECT_TRUE(slow.decided());
  slow.call(64 << 10);
  EXPECT_FALSE(slow.decided());
  slow.call(64 << 20, Function::mpi_reduce_scatter);
  EXPECT_FALSE(slow.decided()) << "another function";
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

TEST(AutoCall, ShortCallsThatPassAreSeldomAskedFor) {
  World world(2, steady(1.4e-6, 20e-6));
  for (int call = 0; call < 80; ++call) {
    world.call(4096);
  }
  const std::uint64_t before = world.asked();
  for (int call = 0; call < 64'000; ++call) {
    world.call(4096);
  }
  EXPECT_NEAR(static_cast<double>(world.asked() - before), 1000, 50);
}

// Seen red: a way that no codec stands for was an index beyond the policy's list.
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

// Microseconds of one call each way, of the slowest rank, as two ranks (`shm2`), four on two cores (`shm4`) and two
// hosts at 1 Gbit/s (`lab`) took them by turns: MPI_Allreduce, and int8.
class AutoCallTrace : public testing::TestWithParam<std::string> {};

TEST_P(AutoCallTrace, CostsLittleMoreThanTheBestWay) {
  std::vector<std::array<double, 2>> trace;
  std::ifstream file(std::string(GRADWIRE_SOURCE_DIR) + "/tests/drop_in/traces/" + GetParam() + ".txt");
  for (std::array<double, 2> row{}; file >> row[0] >> row[1];) {
    trace.push_back({row[0] * 1e-6, row[1] * 1e-6});
  }
  ASSERT_EQ(trace.size(), 200U);
  constexpr std::uint64_t kRounds = 100;
  std::array<double, 2> fixed{};
  for (const auto& row : trace) {
    fixed[0] += kRounds * row[0];
    fixed[1] += kRounds * row[1];
  }
  // Compression must save 5% to be taken.
  const double best = std::max(fixed[1], 0.95 * fixed[0]);
  for (const std::uint64_t start : {0U, 23U, 61U, 97U, 139U, 181U}) {
    World world(2, [&](std::uint64_t call, Way way, int) { return trace[(start + call) % trace.size()][way]; });
    for (int call = 0; call < 80; ++call) {
      world.call();
    }
    EXPECT_TRUE(world.decided());
    const double decided = world.seconds();
    for (std::uint64_t call = 0; call < kRounds * trace.size(); ++call) {
      world.call();
    }
    // Trials cost a whole call, so a choice that rests on a moment of the machine stays for longer: in one of the
    // traces int8 is faster in 105 of 200 calls, and yet takes 8% longer in all.
    const double most = GetParam() == "shm2-4194304" ? 1.03 : 1.005;
    EXPECT_LE((world.seconds() - decided) / std::min(fixed[0], best), most) << "from row " << start;
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, AutoCallTrace,
                         testing::Values("lab-16384", "lab-65536", "lab-1048576", "shm2-16384", "shm2-131072",
                                         "shm2-1048576", "shm2-4194304", "shm2-16777216", "shm4-262144"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace gradwire::drop_in
