// Tests that waits count only the time in which the process ran.
#include "base/awake_time.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "base/end_wait.hpp"

namespace gradwire {
namespace {

using namespace std::chrono_literals;
using Clock = AwakeTime::Clock;

TEST(AwakeTime, ALongTimeBetweenTwoLooksCountsAsOneSecond) {
  const Clock::time_point begin{};
  AwakeTime time(begin);
  EXPECT_EQ(time.waited(begin + 300ms), 300ms);
  EXPECT_EQ(time.waited(begin + 1h), 1300ms) << "stopped for an hour";
  EXPECT_EQ(time.waited(begin + 1h + 500ms), 1800ms);
  EXPECT_EQ(time.waited(begin), 1800ms) << "a clock that jumps back";
  time.restart(begin + 2h);
  EXPECT_EQ(time.waited(begin + 2h + 10ms), 10ms);
}

// Mutation tried: each wait has all the time.
TEST(EndWait, AllWaitsOfAProcessHaveOneBound) {
  EndBudget budget(300ms);
  const auto begin = Clock::now();
  for (int communicator = 0; communicator < 20; ++communicator) {
    EndWait wait(budget);
    while (!wait.over()) {
      pause_after(wait.waited());
    }
  }
  EXPECT_GE(Clock::now() - begin, 300ms);
  EXPECT_LT(Clock::now() - begin, 3s);
  EXPECT_EQ(budget.left(), 0ms);
  EXPECT_EQ(end_budget().left(), 30s) << "that of the process is another one";
}

TEST(AwakeTime, AWaitEndsWhenItsTimeIsOver) {
  Mutex mutex;
  CondVar changed;
  const MutexLock lock(mutex);
  const auto begin = Clock::now();
  EXPECT_FALSE(wait_awake(changed, mutex, 1100ms, [] { return false; }));
  EXPECT_GE(Clock::now() - begin, 1100ms);
  EXPECT_TRUE(wait_awake(changed, mutex, 1h, [] { return true; }));
  EXPECT_FALSE(wait_awake(changed, mutex, 0ms, [] { return false; }));
  EXPECT_TRUE(wait_awake(changed, mutex, 0ms, [] { return true; }));
}

}  // namespace
}  // namespace gradwire
