// Tests guesses of rows that the next step pulls: what they are, that wrong ones end, and what a table makes of them.
#include "table/pull_guess.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <set>

#include "service_world.hpp"

namespace gradwire::table {
namespace {

constexpr std::uint64_t kEnough = 1 << 20;  // bytes

std::vector<Ids> random_batches(std::size_t count, std::mt19937& random) {
  std::vector<Ids> batches;
  for (std::size_t i = 0; i < count; ++i) {
    std::set<std::uint64_t> ids;
    while (ids.size() < 20) {
      ids.insert(random() % 1000);
    }
    batches.emplace_back(ids.begin(), ids.end());
  }
  return batches;
}

Ids guess_after(PullGuess& guess, const Ids& step) {
  guess.add(step);
  return guess.end_step();
}

TEST(PullGuess, KnowsTheStepsOfAnEpochThatRepeats) {
  std::mt19937 random(5);
  const std::vector<Ids> batches = random_batches(30, random);
  PullGuess guess(kEnough);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (std::size_t i = 0; i < batches.size(); ++i) {
      Ids shuffled = batches[i];
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      const Ids expected = epoch == 0 && i + 1 < batches.size() ? Ids{} : batches[(i + 1) % batches.size()];
      // The first batch of the second epoch is the first one that is known.
      ASSERT_EQ(guess_after(guess, shuffled), epoch == 0 ? Ids{} : expected) << "epoch " << epoch << ", step " << i;
    }
  }
  EXPECT_EQ(guess.hits(), 20 * (2 * batches.size() - 1));
  EXPECT_EQ(guess.misses(), 0U);
}

TEST(PullGuess, TakesRowsOfTheLastStepWhereMostOfThemRepeat) {
  PullGuess guess(kEnough);
  EXPECT_EQ(guess_after(guess, {1, 2, 3, 4}), Ids{});
  EXPECT_EQ(guess_after(guess, {2, 3, 4, 5}), (Ids{2, 3, 4, 5}));
  EXPECT_EQ(guess_after(guess, {3, 4, 5, 6}), (Ids{3, 4, 5, 6}));
  EXPECT_EQ(guess.hits(), 3U);
  EXPECT_EQ(guess.misses(), 1U);
  EXPECT_EQ(guess_after(guess, {7, 8, 9, 10}), Ids{});
  EXPECT_EQ(guess_after(guess, {}), Ids{}) << "a step without pulls";
}

TEST(PullGuess, PausesAfterWrongGuesses) {
  PullGuess guess(kEnough);
  std::uint64_t guesses = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {  // steps in pairs; each looks as if its rows came once more
    const std::uint64_t id = i / 2 * 10;
    guesses += guess_after(guess, {id, id + 1 + i % 2, id + 5}).empty() ? 0 : 1;
  }
  EXPECT_GT(guesses, 3U);
  EXPECT_LT(guesses, 40U);
  EXPECT_EQ(guess.hits(), 0U);
}

TEST(PullGuess, ForgetsTheOldestStepsFirst) {
  std::mt19937 random(6);
  const std::vector<Ids> batches = random_batches(200, random);
  PullGuess guess(64 * 200);  // less than all of them take
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Ids& batch : batches) {
      EXPECT_EQ(guess_after(guess, batch), Ids{});
    }
  }
  EXPECT_EQ(guess_after(guess, batches[198]), batches[199]);
  PullGuess tiny(1);
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(guess_after(tiny, batches[static_cast<std::size_t>(i % 2)]));
  }
  EXPECT_EQ(tiny.hits() + tiny.misses(), 0U);
}

// Mutation tried: ends of steps begin no prefetch.
TEST(PullGuess, LetsPullsFindTheirRowsInTheCache) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::vector<Ids> batches = random_batches(10, random);
  for (const bool guesses : {false, true}) {
    TableOptions o = options(0);
    o.cache_bytes = 1 << 20;
    o.guess_bytes = guesses ? kEnough : 0;
    World world(2, o, seed);
    std::vector<float> sums(o.rows);
    std::uint64_t cached = 0;
    for (std::size_t step = 0; step < 40; ++step) {
      const Ids& ids = batches[step % batches.size()];
      const std::uint64_t before = world[0].statistics().rows_cached;
      for (int rank = 0; rank < 2; ++rank) {
        const std::vector<float> rows = world.pull(rank, ids);
        for (std::size_t i = 0; i < ids.size(); ++i) {
          ASSERT_EQ(rows[i], sums[ids[i]]) << "row " << ids[i] << " in step " << step;
        }
      }
      cached += step >= 20 ? world[0].statistics().rows_cached - before : 0;
      for (int rank = 0; rank < 2; ++rank) {
        for (const std::uint64_t id : ids) {
          world.push(rank, id, -1);
          ++sums[id];
        }
        world[rank].tick();
      }
      world.deliver_all();  // a step's computation; what was guessed arrives
    }
    const TableStatistics statistics = world[0].statistics();
    const auto others = [&](const Ids& ids) {
      return std::count_if(ids.begin(), ids.end(), [&](std::uint64_t id) { return world[0].owner(id) == 1; });
    };
    std::uint64_t pulled = 0;
    for (std::size_t step = 20; step < 40; ++step) {
      pulled += static_cast<std::uint64_t>(others(batches[step % batches.size()]));
    }
    EXPECT_EQ(cached, guesses ? pulled : 0);
    EXPECT_EQ(statistics.rows_guessed, guesses ? 20U * 29U : 0U);
    EXPECT_EQ(statistics.rows_guessed_in_vain, 0U);
  }
}

}  // namespace
}  // namespace gradwire::table
