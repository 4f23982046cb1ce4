// Tests the choice between two ways of equal results, for several ranks whose times differ, come late or are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "choice/equal_ways.hpp"

namespace gradwire::choice {
namespace {

constexpr std::uint64_t kFirstCalls = EqualWays::kUntimed + EqualWays::kTurns;

// The ranks of a communicator, whose exchange counts one call after it was said in this test.
struct World {
  using Seconds = std::function<double(int rank, bool second)>;

  explicit World(Seconds scripted, int ranks = 3)
      : seconds(std::move(scripted)), all(static_cast<std::size_t>(ranks)) {}

  // Makes a call on all ranks, which must agree, and returns whether it goes the second way.
  bool call(std::size_t kind = 0) {
    std::vector<EqualWays::Turn> turns;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      turns.push_back(all[rank].ways.next(kind));
      EXPECT_EQ(turns[rank].second, turns[0].second);
      if (turns[rank].timed) {
        all[rank].late.push_back({*turns[rank].timed, seconds(static_cast<int>(rank), turns[rank].second)});
      }
    }
    return turns[0].second;
  }

  // Ranks learn all their times but the latest `unknown`, and exchange what they have.
  void exchange(std::size_t unknown = 0) {
    std::array<std::uint32_t, EqualWays::kWords> largest{};
    for (Rank& rank : all) {
      EXPECT_EQ(rank.ways.asks(), all[0].ways.asks());
      while (rank.late.size() > unknown) {
        if (rank.late.front().seconds > 0) {
          rank.ways.timed(rank.late.front().call, rank.late.front().seconds);
        }
        rank.late.pop_front();
      }
      std::array<std::uint32_t, EqualWays::kWords> mine{};
      rank.ways.say(mine);
      std::transform(mine.begin(), mine.end(), largest.begin(), largest.begin(),
                     [](std::uint32_t a, std::uint32_t b) { return std::max(a, b); });
    }
    for (Rank& rank : all) {
      rank.ways.heard(largest);
    }
  }

  // Makes a kind's first calls.
  void compare(std::size_t kind = 0) {
    for (std::uint64_t i = 0; i < kFirstCalls; ++i) {
      EXPECT_EQ(call(kind), i % 2 == 1) << "call " << i;
    }
  }

  struct Late {
    EqualWays::Timed call;
    double seconds;
  };
  struct Rank {
    EqualWays ways;
    std::deque<Late> late;
  };
  Seconds seconds;
  std::deque<Rank> all;
};

World::Seconds steady(double first, double second) {
  return [=](int, bool by_second) { return by_second ? second : first; };
}

TEST(EqualWays, TakeTheFasterOneOnceAllRanksHaveComparedIt) {
  for (const double ratio : {0.5, 0.96, 0.98, 1.0, 3.0}) {
    World world(steady(1e-3, ratio * 1e-3));
    EXPECT_FALSE(world.all[0].ways.asks());
    world.compare();
    EXPECT_TRUE(world.all[0].ways.asks());
    EXPECT_FALSE(world.call()) << "nothing is compared yet";
    world.exchange();
    EXPECT_EQ(world.call(), ratio < EqualWays::kAdoptBelow) << ratio;
    EXPECT_EQ(world.all[0].ways.second(0), ratio < EqualWays::kAdoptBelow);
    EXPECT_FALSE(world.all[0].ways.asks());
  }
}

TEST(EqualWays, TheSlowestRankCounts) {
  World world([](int rank, bool second) { return second ? (rank == 2 ? 1.5e-3 : 0.1e-3) : 1e-3; });
  world.compare();
  world.exchange();
  EXPECT_FALSE(world.call());
}

TEST(EqualWays, ARankWithoutTimesIsWaitedForAndThenTheFirstWayStays) {
  World world([](int rank, bool second) { return rank == 1 ? 0.0 : second ? 0.1e-3 : 1e-3; });
  world.compare();
  for (unsigned round = 0; round < EqualWays::kMostRounds; ++round) {
    EXPECT_TRUE(world.all[0].ways.asks()) << round;
    EXPECT_FALSE(world.call());
    world.exchange();
  }
  EXPECT_FALSE(world.all[0].ways.asks());
  EXPECT_FALSE(world.call());
}

TEST(EqualWays, TimesOfOneWayAloneDecideNothing) {
  for (const bool lost : {false, true}) {
    World world([=](int rank, bool second) { return rank == 1 && second == lost ? 0.0 : second ? 0.1e-3 : 1e-3; });
    world.compare();
    world.exchange();
    EXPECT_FALSE(world.call());
    EXPECT_TRUE(world.all[0].ways.asks());
  }
}

TEST(EqualWays, WordsThatAnswerNothingAndTimesOfAnEarlierComparisonDoNotCount) {
  World world(steady(1e-3, 2e-3));
  EqualWays& ways = world.all[0].ways;
  world.compare();
  const std::deque<World::Late> early = world.all[0].late;
  std::array<std::uint32_t, EqualWays::kWords> words{};
  words[0] = 100;
  words[1] = 1;
  ways.heard(words);  // of an exchange in which this was not said
  EXPECT_TRUE(ways.asks());
  world.exchange();
  EXPECT_FALSE(world.call());
  for (std::uint64_t i = 1; i < EqualWays::kAgain; ++i) {
    static_cast<void>(world.call());
  }
  world.compare();
  for (int times = 0; times < 4; ++times) {
    for (const World::Late& late : early) {
      ways.timed(late.call, late.call.second ? 1e-6 : 1.0);
    }
  }
  ways.say(words);
  EXPECT_EQ(words[0], EqualWays::kNoSample);
  EXPECT_EQ(words[1], EqualWays::kNoSample);
}

TEST(EqualWays, LateTimesCountInALaterExchange) {
  World world(steady(1e-3, 0.5e-3));
  world.compare();
  world.exchange(EqualWays::kTurns);
  EXPECT_FALSE(world.call());
  world.exchange();
  EXPECT_TRUE(world.call());
}

TEST(EqualWays, AreComparedAgainLaterAndByThatAlone) {
  double second = 0.5e-3;
  World world([&](int, bool by_second) { return by_second ? second : 1e-3; });
  world.compare();
  world.exchange();
  second = 2e-3;
  for (std::uint64_t i = 0; i < EqualWays::kAgain; ++i) {
    ASSERT_TRUE(world.call()) << i;
  }
  world.compare();
  EXPECT_TRUE(world.call()) << "until the ranks have compared it again";
  world.exchange();
  EXPECT_FALSE(world.call());
}

TEST(EqualWays, KindsAreComparedApartAndAtOnce) {
  World world([](int, bool second) { return second ? 0.5e-3 : 1e-3; });
  const std::size_t last = EqualWays::kMostKinds - 1;
  for (std::uint64_t i = 0; i < kFirstCalls; ++i) {
    EXPECT_EQ(world.call(0), i % 2 == 1);
    EXPECT_EQ(world.call(last), i % 2 == 1);
  }
  EXPECT_FALSE(world.call(5));
  world.exchange();
  EXPECT_TRUE(world.call(0));
  EXPECT_TRUE(world.call(last));
  EXPECT_TRUE(world.call(5)) << "its second call, in its turn";
  EXPECT_FALSE(world.call(5));
}

}  // namespace
}  // namespace gradwire::choice
