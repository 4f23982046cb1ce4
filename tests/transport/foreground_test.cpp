#include "transport/foreground.hpp"

#include <gtest/gtest.h>

namespace gradwire::transport {
namespace {

using std::chrono::milliseconds;

TEST(Foreground, IsSeenWhileItSendsAndMoves) {
  const Foreground::Clock::time_point start{std::chrono::hours(1)};
  Foreground step;
  EXPECT_FALSE(foreground_sends(start));
  step.note(true, false, start);
  EXPECT_TRUE(foreground_sends(start + milliseconds(19)));
  EXPECT_FALSE(foreground_sends(start + kHoldsBack)) << "otherwise others wait for ever";
  step.note(true, false, start + milliseconds(30));
  EXPECT_FALSE(foreground_sends(start + milliseconds(30))) << "it has not moved";
  step.note(true, true, start + milliseconds(40));
  EXPECT_TRUE(foreground_sends(start + milliseconds(50)));
  step.note(false, true, start + milliseconds(50));
  EXPECT_FALSE(foreground_sends(start + milliseconds(50)));
}

TEST(Foreground, OneOfSeveralIsEnough) {
  const Foreground::Clock::time_point start{std::chrono::hours(2)};
  Foreground one;
  {
    Foreground other;
    one.note(true, true, start);
    other.note(true, true, start);
    one.note(false, false, start);
    one.note(false, false, start);
    EXPECT_TRUE(foreground_sends(start));
  }
  EXPECT_FALSE(foreground_sends(start)) << "a sender that is gone counts";
}

}  // namespace
}  // namespace gradwire::transport
