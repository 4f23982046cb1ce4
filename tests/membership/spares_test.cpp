// Processes that wait to be members, one state machine at a time: when they are taken in, and how many.
#include <gtest/gtest.h>

#include "tests/membership/hands.hpp"

namespace gradwire::membership {
namespace {

Message waits(Id who, std::vector<Id> knows_ended) {
  Message said;
  said.kind = Message::Kind::waits;
  said.from = who;
  said.dead = std::move(knows_ended);
  return said;
}

Membership one_of(Id self, std::vector<Id> members, std::vector<Id> spares) {
  const Settings settings{.full = members.size(), .spares = spares};
  Membership made(self, World{1, std::move(members)}, 0, settings, Time(1000));
  for (const Id who : spares) {
    made.let_in(who);
  }
  return made;
}

// So that no majority is without one that holds what steps need. Tried by hand, red: as many as are missing.
TEST(MembershipSpares, AsManyComeAsMembersAreLeftAndOthersAfterAStep) {
  Membership zero = one_of(0, {0, 1, 2, 3}, {4, 5, 6});
  for (const Id spare : {4U, 5U, 6U}) {
    zero.receive(waits(spare, {1, 2, 3}), Time(1000));
  }
  for (const Id ended : {1U, 2U, 3U}) {
    zero.dead(ended, Time(1000));
  }
  ASSERT_EQ(zero.world(), (World{2, {0, 4}}));
  Message here;  // of the one that came
  here.kind = Message::Kind::beat;
  here.from = 4;
  here.epoch = 2;
  zero.receive(here, Time(1100));
  zero.tick(Time(1200));
  EXPECT_FALSE(zero.agreeing()) << "it has not learnt yet";
  here.kind = Message::Kind::ready;
  here.step = 1;
  zero.receive(here, Time(1300));
  zero.ready(1);
  EXPECT_EQ(zero.delivered(), 1U);
  zero.tick(Time(1400));
  EXPECT_TRUE(zero.agreeing()) << "places are free";
}

// Tried by hand, red: one that was heard at any time counts.
TEST(MembershipSpares, OneThatIsSilentIsNotTaken) {
  for (const int later : {500, 1500}) {
    Membership zero = one_of(0, {0, 1}, {2});
    zero.receive(waits(2, {}), Time(1000));
    zero.dead(1, Time(1000 + later));
    EXPECT_EQ(members(zero), later < 1000 ? (std::vector<Id>{0, 2}) : std::vector<Id>{0});
  }
}

TEST(MembershipSpares, OneThatWasNotLetInIsNotTaken) {
  Membership zero(0, World{1, {0, 1}}, 0, {.full = 2, .spares = {2}}, Time(1000));
  zero.receive(waits(2, {}), Time(1000));
  zero.dead(1, Time(1000));
  EXPECT_EQ(members(zero), std::vector<Id>{0});
}

// The lower one may have left this one out and gone on with the spare. Tried by hand, red: without a look at spares.
TEST(MembershipSpares, WhoIsLeftAloneAsksThoseThatWait) {
  Membership one = one_of(1, {0, 1}, {2});
  one.receive(waits(2, {}), Time(1000));
  one.dead(0, Time(1100));
  EXPECT_TRUE(one.agreeing());
  one.receive(waits(2, {0}), Time(1200));
  EXPECT_EQ(one.world(), (World{2, {1, 2}}));
}

TEST(MembershipSpares, OneKnowsWhenNobodyIsLeft) {
  Membership two(2, World{}, 0, {.full = 2, .spares = {2, 3}}, Time(1000));
  two.wait_among({0, 1, 2, 3});
  EXPECT_FALSE(two.alone());
  two.receive(waits(3, {0}), Time(1000));
  two.dead(0, Time(1000));
  two.dead(1, Time(1000));
  EXPECT_FALSE(two.alone()) << "1 may have taken the other spare in";
  two.receive(waits(3, {0, 1}), Time(1100));
  EXPECT_TRUE(two.alone());
}

}  // namespace
}  // namespace gradwire::membership
