// Tests when a waiting rank looks again: at once if waits are short, rarely if they are long.
#include <gtest/gtest.h>

#include "transport/backoff.hpp"

namespace gradwire::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::Patience;

constexpr microseconds kYield{50};
constexpr microseconds kOversleeps{55};  // extra time of a sleep
constexpr microseconds kLook{2};         // time of a look that finds nothing

struct Waited {
  int yields = 0;
  int sleeps = 0;
};

class Waiter {
 public:
  explicit Waiter(microseconds yield = kYield) : patience_(yield) {}

  /// Posts an operation that ends after `after`, and waits for it.
  Waited wait(microseconds after) {
    Waited waited;
    patience_.posted(now_);
    for (const auto over = now_ + after; now_ < over;) {
      const auto asked = patience_.next(now_);
      const auto from = now_;
      now_ += asked.count() > 0 ? asked + kOversleeps : kLook;
      asked.count() > 0 ? ++waited.sleeps : ++waited.yields;
      patience_.slept(asked, from, now_);
    }
    patience_.completed(now_);
    return waited;
  }

  Waited waits(int count, microseconds after) {
    Waited last;
    for (int i = 0; i < count; ++i) {
      last = wait(after);
    }
    return last;
  }

 private:
  Patience patience_;
  Patience::Clock::time_point now_ = Patience::Clock::now();
};

TEST(Patience, ShortWaitsNeverSleep) {
  Waiter waiter;
  EXPECT_EQ(waiter.waits(100, microseconds(40)).sleeps, 0);
}

// Mutation tried: usual() is never called.
TEST(Patience, LongWaitsSleepFromTheStart) {
  Waiter waiter;
  waiter.waits(20, microseconds(500));
  const Waited waited = waiter.wait(microseconds(500));
  EXPECT_EQ(waited.yields, 0);
  EXPECT_LE(waited.sleeps, 6);
}

// A sleep must not look like a long wait for ever. Mutation tried: waits of 50 us or more sleep.
TEST(Patience, WaitsThatBecomeShortAreYieldedAgain) {
  Waiter waiter;
  waiter.waits(20, microseconds(900));
  const Waited waited = waiter.waits(40, microseconds(5));
  EXPECT_EQ(waited.sleeps, 0);
  EXPECT_GT(waited.yields, 0);
}

// Mutation tried: a wait counts with its full length.
TEST(Patience, OnePauseOfTheJobIsForgottenSoon) {
  Waiter waiter;
  waiter.waits(20, microseconds(5));
  waiter.wait(milliseconds(3000));
  EXPECT_EQ(waiter.waits(3, microseconds(5)).sleeps, 0);
}

TEST(Patience, ALongerMomentIsKept) {
  Waiter waiter(milliseconds(100));
  EXPECT_EQ(waiter.waits(50, microseconds(800)).sleeps, 0);
}

TEST(Patience, WhoIsWokenLateYields) {
  Patience patience(kYield);
  const auto now = Patience::Clock::now() + milliseconds(1);
  EXPECT_GT(patience.next(now).count(), 0);
  patience.slept(microseconds(10), now, now + milliseconds(2));
  EXPECT_EQ(patience.next(now + milliseconds(3)).count(), 0);
  EXPECT_GT(patience.next(now + milliseconds(30)).count(), 0);
}

}  // namespace
}  // namespace gradwire::test
