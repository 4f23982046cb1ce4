#include "api/shim/step_tracker.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gradwire::shim {
namespace {

// A letter is a call: its count.
Signature call(char letter) {
  return {.function = Function::mpi_allreduce, .count = static_cast<std::uint64_t>(letter)};
}

// Orders of the calls as digits, '?' where unknown.
std::string orders(StepTracker& tracker, const std::string& calls) {
  std::string text;
  for (const char letter : calls) {
    const auto place = tracker.next(call(letter));
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
    EXPECT_EQ(tracker.next(call('a'))->step, step);
    EXPECT_EQ(tracker.next(call('b'))->step, step);
  }
}

// Two periods at least: the first 20 calls of this step are all alike for 15.
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

// A lasting change, as of a framework that fuses anew after its first steps.
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
      fresh.next(i % 2 == 0 ? plain : other);
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
    EXPECT_FALSE(tracker.next({.function = Function::mpi_allreduce, .count = i}));
  }
}

}  // namespace
}  // namespace gradwire::shim
