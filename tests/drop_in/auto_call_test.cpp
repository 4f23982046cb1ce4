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
#include <random>
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

  // The way of the call, the same on every rank.
  Way call(std::uint64_t bytes = kBytes, Function function = Function::mpi_allreduce, std::size_t ways = 2) {
    exchanged_ = exchange(class_of(bytes, function), bytes, ways);
    const AutoCall::Turn first = auto_calls_[0]->turn();
    std::vector<AutoCall::Turn> turns{first};
    for (std::size_t rank = 1; rank < auto_calls_.size(); ++rank) {
      const AutoCall::Turn turn = auto_calls_[rank]->turn();
      EXPECT_EQ(turn.way, first.way);
      EXPECT_EQ(turn.timed, first.timed);
      EXPECT_EQ(*turn.left, *first.left);
    }
    decided_ = first.decided;
    asked_ += first.timed ? 1 : 0;
    double longest = 0;
    for (std::size_t rank = 0; rank < auto_calls_.size(); ++rank) {
      const double seconds = duration_(calls_, first.way, static_cast<int>(rank));
      longest = std::max(longest, seconds);
      if (first.timed) {
        auto_calls_[rank]->measured(seconds + (exchanged_ ? 0 : late_[rank]));
      }
    }
    ++calls_;
    seconds_ += longest + (exchanged_ ? kExchange : 0);
    return first.way;
  }

  // From now on a rank waits so long in calls before which ranks do not synchronise.
  void set_waiting(std::vector<double> seconds) { late_ = std::move(seconds); }
  void set_duration(Duration duration) { duration_ = std::move(duration); }
  [[nodiscard]] AutoCall& auto_call(std::size_t rank = 0) { return *auto_calls_[rank]; }
  [[nodiscard]] bool exchanged() const { return exchanged_; }
  [[nodiscard]] bool decided() const { return decided_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] std::uint64_t asked() const { return asked_; }

 private:
  bool exchange(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways) {
    std::vector<double> worst;
    for (const auto& auto_call : auto_calls_) {
      const auto question = auto_call->begin(what, bytes, ways);
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

  Duration duration_;
  std::vector<std::unique_ptr<AutoCall>> auto_calls_;
  std::vector<double> late_ = std::vector<double>(64, 0.0);
  std::uint64_t calls_ = 0;
  std::uint64_t asked_ = 0;
  double seconds_ = 0;
  bool exchanged_ = false;
  bool decided_ = false;
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
    for (int call = 0; call < 40; ++call) {
      world.call();
    }
    EXPECT_TRUE(world.decided());
    EXPECT_EQ(world.call(), compressed < 1e-3 ? 1 : 0);
    EXPECT_THAT(*world.auto_call().compared(class_of(kBytes)), ElementsAre(1e-3, compressed));
  }
}

TEST(AutoCall, PassesWhereCompressionSavesTooLittle) {
  World world(2, steady(1e-3, 0.97e-3));
  for (int call = 0; call < 60; ++call) {
    world.call();
  }
  EXPECT_EQ(world.call(), 0) << "3% are not worth the error";
}

TEST(AutoCall, TakesTheBestOfSeveralCodecs) {
  World world(2, [](std::uint64_t, Way way, int) { return way == 0 ? 4e-3 : way == 1 ? 2e-3 : 1e-3; });
  for (int call = 0; call < 40; ++call) {
    world.call(kBytes, Function::mpi_allreduce, 3);
  }
  EXPECT_EQ(world.call(kBytes, Function::mpi_allreduce, 3), 2);
}

TEST(AutoCall, OneSlowRankCountsForAll) {
  World world(4, [](std::uint64_t, Way way, int rank) { return way == 0 ? 1e-3 : rank == 2 ? 3e-3 : 0.1e-3; });
  for (int call = 0; call < 40; ++call) {
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
  EXPECT_EQ(world.call(), 1);
  EXPECT_TRUE(world.decided());
}

TEST(AutoCall, TheFirstPairIsCold) {
  World world(2, [](std::uint64_t call, Way way, int) { return way == 0 ? 1e-3 : call < 2 ? 50e-3 : 0.5e-3; });
  for (int call = 0; call < 40; ++call) {
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

TEST(AutoCall, ComparisonsCostLittle) {
  for (const double passed : {1.4e-6, 15e-6, 0.7e-3, 30e-3}) {
    for (const double times : {1.05, 1.5, 14.0}) {
      World world(2, steady(passed, passed * times));
      for (int call = 0; call < 40; ++call) {
        world.call();
      }
      const double decided = world.seconds();
      constexpr int kCalls = 200'000;
      for (int call = 0; call < kCalls; ++call) {
        world.call();
      }
      const double cost = (world.seconds() - decided) / (kCalls * passed) - 1;
      EXPECT_LE(cost, 0.005) << passed << " s, " << times << " times";
      EXPECT_GT(world.auto_call().choices().at(class_of(kBytes)).back().call, 1000U)
          << "it is compared again now and then: " << passed << " s, " << times << " times";
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
  for (int call = 0; call < 40; ++call) {
    world.call(64 << 10);
  }
  EXPECT_EQ(world.call(32 << 10), 0);
  EXPECT_TRUE(world.decided()) << "smaller, and four times as slow above: not compared";
  EXPECT_EQ(world.auto_call().compared(class_of(32 << 10)), std::nullopt);
  world.call(128 << 10);
  EXPECT_FALSE(world.decided()) << "larger: compression may pay";

  World slow(2, [](std::uint64_t, Way way, int) { return way == 0 ? 40e-3 : 10e-3; });
  for (int call = 0; call < 40; ++call) {
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
  std::size_t timed = 0;
  for (std::uint32_t rule = 0; rule < 2 * AutoCall::kMostClasses; ++rule) {
    ChoiceClass what = class_of(kBytes);
    what.rule = rule;
    if (!auto_call.begin(what, kBytes, 2).empty()) {
      auto_call.answer(std::vector<double>{0, -1e-6}, 1e-6);
    }
    const auto turn = auto_call.turn();
    timed += turn.timed ? 1 : 0;
    EXPECT_EQ(turn.way, 0);
    auto_call.measured(1e-3);
  }
  EXPECT_EQ(timed, AutoCall::kMostClasses);
}

TEST(AutoCall, ShortCallsThatPassAreSeldomAskedFor) {
  World world(2, steady(1.4e-6, 20e-6));
  for (int call = 0; call < 40; ++call) {
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
  static_cast<void>(auto_call.begin(what, 1 << 20, 2));
  EXPECT_EQ(auto_call.turn().way, 0);
  static_cast<void>(auto_call.begin(what, 1 << 20, 2));
  EXPECT_EQ(auto_call.turn().way, 1);
}

TEST(AutoCall, FollowsWhatWasRecorded) {
  World first(2, steady(1e-3, 0.6e-3));
  std::vector<Way> ways;
  for (int call = 0; call < 3000; ++call) {
    first.set_duration(call < 1000 ? steady(1e-3, 0.6e-3) : steady(1e-3, 2e-3));
    ways.push_back(first.call());
  }
  EXPECT_GT(changes_of(first), 10);
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

TEST_P(AutoCallTrace, CostsAtMostHalfAPercentOfTheBestWay) {
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
    for (int call = 0; call < 40; ++call) {
      world.call();
    }
    EXPECT_TRUE(world.decided());
    const double decided = world.seconds();
    for (std::uint64_t call = 0; call < kRounds * trace.size(); ++call) {
      world.call();
    }
    EXPECT_LE((world.seconds() - decided) / std::min(fixed[0], best), 1.005) << "from row " << start;
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
