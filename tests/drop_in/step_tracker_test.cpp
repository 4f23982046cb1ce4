#include "drop_in/step_tracker.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gradwire::drop_in {
namespace {

// Returns the signature of a call whose count is a letter.
Signature call(char letter) {
  return {.function = Function::mpi_allreduce, .count = static_cast<std::uint64_t>(letter)};
}

// Makes the next call, and always accepts the shortest period.
std::optional<StepTracker::Place> next(StepTracker& tracker, const Signature& signature) {
  const auto place = tracker.next(signature);
  if (tracker.due()) {
    tracker.adopt(tracker.shortest());
  }
  return place;
}

// Returns the orders of the calls as digits, '?' if unknown.
std::string orders(StepTracker& tracker, const std::string& calls) {
  std::string text;
  for (const char letter : calls) {
    const auto place = next(tracker, call(letter));
    text += place ? static_cast<char>('0' + place->order) : '?';
  }
  return text;
}

std::string repeat(const std::string& step, int times) {
  std::string calls;
  for (int i = 0; i < times; ++i) {
    calls += step;
  }
  return calls;
}

TEST(StepTracker, FindsThePeriod) {
  StepTracker tracker;
  EXPECT_EQ(orders(tracker, repeat("abcaad", 3)), repeat("?", 16) + "45");
  EXPECT_EQ(tracker.period(), 6U);
  EXPECT_EQ(orders(tracker, repeat("abcaad", 2)), "012345012345");
}

TEST(StepTracker, StepsAreCounted) {
  StepTracker tracker;
  orders(tracker, repeat("ab", 8));
  for (std::uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(next(tracker, call('a'))->step, step);
    EXPECT_EQ(next(tracker, call('b'))->step, step);
  }
}

// This does not hold if places count from the very first call. Mutation tried: nothing is dropped.
TEST(StepTracker, AFirstStepThatDiffersIsLeftOut) {
  StepTracker tracker(false);
  EXPECT_EQ(orders(tracker, "xyz" + repeat("abcd", 30)).find_last_of('?'), 63U);
  EXPECT_EQ(tracker.period(), 4U);
  StepTracker strict;
  orders(strict, "xyz" + repeat("abcd", 100));
  EXPECT_EQ(strict.period(), 0U);
}

// A period must occur at least twice: 15 of the first 20 calls of this step are equal.
TEST(StepTracker, EqualTensorsAtTheStartAreNoPeriod) {
  StepTracker tracker;
  const std::string step = repeat("a", 15) + "bcdef";
  EXPECT_EQ(orders(tracker, step + step).find_first_not_of('?'), std::string::npos);
  EXPECT_EQ(tracker.period(), 20U);
  EXPECT_EQ(tracker.next(call('a'))->order, 0U);
}

TEST(StepTracker, OneCallAStep) {
  StepTracker tracker;
  EXPECT_EQ(orders(tracker, repeat("a", 18)), repeat("?", 16) + "00");
}

// The change is lasting, as when a framework fuses its tensors again after its first steps.
TEST(StepTracker, AnotherSequenceIsLearntAnew) {
  StepTracker tracker;
  orders(tracker, repeat("abc", 6));
  ASSERT_EQ(tracker.period(), 3U);
  EXPECT_EQ(orders(tracker, "abx"), "01?");
  EXPECT_TRUE(tracker.broke());
  EXPECT_EQ(tracker.period(), 0U);
  orders(tracker, "y" + repeat("xy", 7));
  EXPECT_FALSE(tracker.broke());
  EXPECT_EQ(tracker.period(), 2U);
  EXPECT_EQ(tracker.next(call('x'))->order, 0U);
}

TEST(StepTracker, FunctionDtypeAndCountTellCallsApart) {
  StepTracker tracker;
  const Signature plain = call('a');
  Signature other = plain;
  const auto known_period = [&] {
    StepTracker fresh;
    for (int i = 0; i < 16; ++i) {
      next(fresh, i % 2 == 0 ? plain : other);
    }
    return fresh.period();
  };
  EXPECT_EQ(known_period(), 1U);
  other.dtype = DType::f16;
  EXPECT_EQ(known_period(), 2U);
  other = plain;
  other.function = Function::mpi_reduce_scatter;
  EXPECT_EQ(known_period(), 2U);
}

// Calls that never repeat take bounded memory and stay unknown.
TEST(StepTracker, NoPeriodIsNoPeriod) {
  StepTracker tracker;
  for (std::uint64_t i = 0; i < 5 * StepTracker::kLongestPeriod; ++i) {
    EXPECT_FALSE(next(tracker, {.function = Function::mpi_allreduce, .count = i}));
  }
}

// Returns the proposal after the first `calls` of a step of `layers` equal calls; hint_of(layer) is the hint of each.
template <class HintOf>
std::size_t proposed(std::size_t layers, std::size_t calls, HintOf hint_of) {
  StepTracker tracker;
  for (std::size_t i = 0; i < calls; ++i) {
    EXPECT_FALSE(tracker.next(call('a'), hint_of(i % layers)));
  }
  EXPECT_TRUE(tracker.due());
  EXPECT_EQ(tracker.shortest(), 1U);
  return tracker.proposal();
}

// If equal layers were taken for one call per step, they would share one residual. Mutation tried: the shortest period
// is proposed without a look at the hints.
TEST(StepTracker, EqualLayersAreToldApart) {
  const auto buffers = [](std::size_t layer) { return Hint{.identity = 100 + layer}; };
  EXPECT_EQ(proposed(4, 16, buffers), 4U);
  EXPECT_EQ(proposed(9, 16, buffers), 0U) << "there are not yet two steps";
  const auto names = [](std::size_t layer) { return Hint{.identity = 100 + layer, .named = true}; };
  EXPECT_EQ(proposed(4, 16, names), 4U);
  EXPECT_EQ(proposed(1, 16, names), 1U);
  // If all layers use one buffer, or a new one each time, only other collectives between the steps distinguish them.
  const auto staged = [](std::size_t) { return Hint{.identity = 100}; };
  EXPECT_EQ(proposed(1, 16, staged), 0U);
  EXPECT_EQ(proposed(4, 16, staged), 0U);
  const auto fenced = [](std::size_t layer) { return Hint{.identity = 100, .fence = layer == 0}; };
  EXPECT_EQ(proposed(1, 16, fenced), 1U);
  EXPECT_EQ(proposed(4, 16, fenced), 4U);
  std::uint64_t address = 0;
  const auto fresh = [&](std::size_t layer) { return Hint{.identity = ++address, .fence = layer == 0}; };
  EXPECT_EQ(proposed(4, 16, fresh), 4U);
  // There is a norm of each layer: the buffers say more than the fences.
  const auto norms = [](std::size_t layer) { return Hint{.identity = 100 + layer, .fence = true}; };
  EXPECT_EQ(proposed(4, 16, norms), 4U);
}

TEST(StepTracker, LooksAgainWhenTwiceAsManyCallsAreKnown) {
  StepTracker tracker;
  for (std::size_t i = 0; i < 32; ++i) {
    tracker.next(call('a'), {.identity = 100 + i % 9});
    if (i == 15) {
      ASSERT_TRUE(tracker.due());
      tracker.adopt(0);
    }
  }
  ASSERT_TRUE(tracker.due());
  EXPECT_EQ(tracker.proposal(), 9U);
  tracker.adopt(9);
  EXPECT_EQ(tracker.next(call('a'))->order, 32U % 9U);
}

}  // namespace
}  // namespace gradwire::drop_in
