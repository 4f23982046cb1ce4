// Compares the replay window with a set of all counters that came.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "security/sealing.hpp"

namespace gradwire::security {
namespace {

using Verdict = ReplayWindow::Verdict;

TEST(ReplayWindow, TakesEachCounterOnceInAnyOrderInsideIt) {
  ReplayWindow window(128);
  for (std::uint64_t counter = 200; counter-- > 72;) {
    EXPECT_EQ(window.take(counter), Verdict::first) << counter;
  }
  for (std::uint64_t counter = 72; counter < 200; ++counter) {
    EXPECT_EQ(window.take(counter), Verdict::again) << counter;
  }
  EXPECT_EQ(window.take(71), Verdict::too_old);
  EXPECT_EQ(window.take(200), Verdict::first);
  EXPECT_EQ(window.take(72), Verdict::too_old);
  EXPECT_EQ(window.take(kMostMessages - 1), Verdict::first) << "a jump costs no more than the window";
  EXPECT_EQ(window.look_up(kMostMessages - 2), Verdict::first);
  EXPECT_EQ(window.take(200), Verdict::too_old);
}

TEST(ReplayWindow, AgreesWithASetOfAllCounters) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const std::uint64_t width : {64U, 192U, 1024U}) {
    ReplayWindow window(width);
    std::set<std::uint64_t> came;
    std::uint64_t end = 0;
    for (int i = 0; i < 100000; ++i) {
      const std::uint64_t most = random() % 50 == 0 ? 5 * width : random() % 4 == 0 ? width : 4;
      const std::uint64_t ahead = random() % (most + 1);
      const std::uint64_t counter = random() % 2 == 0 ? end + ahead : end - std::min(end, ahead);
      const Verdict expected = end > counter && end - counter > width ? Verdict::too_old
                               : came.contains(counter)               ? Verdict::again
                                                                      : Verdict::first;
      ASSERT_EQ(window.look_up(counter), expected) << counter << " of " << end;
      ASSERT_EQ(window.take(counter), expected) << counter << " of " << end;
      came.insert(counter);
      end = std::max(end, counter + 1);
    }
  }
}

}  // namespace
}  // namespace gradwire::security
