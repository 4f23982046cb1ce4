// Tests processes that wait to be members (spares and joiners), one state machine at a time: when they are taken in,
// and how many.
#include <gtest/gtest.h>

#include "tests/membership/hands.hpp"

namespace gradwire::membership {
namespace {

MembershipMessage waits(Id who, const std::vector<Id>& knows_ended, std::vector<Id> known = {}) {
  MembershipMessage said;
  said.kind = MembershipMessage::Kind::waits;
  said.from = who;
  for (const Id ended : knows_ended) {
    said.dead.push_back({ended});
  }
  said.known = std::move(known);
  return said;
}

Membership one_of(Id self, std::vector<Id> members, std::vector<Id> spares) {
  std::vector<Id> start = members;
  start.insert(start.end(), spares.begin(), spares.end());
  const MembershipSettings settings{.full = members.size(), .start = start, .spares = spares};
  Membership made(self, World{1, std::move(members)}, 0, settings, Time(1000));
  for (const Id who : spares) {
    made.let_in(who);
  }
  return made;
}

// This way no majority lacks a member that holds what steps need. Mutation tried: as many spares are taken in as
// members are missing.
TEST(MembershipSpares, AsManyComeAsMembersAreLeftAndOthersAfterAStep) {
  Membership zero = one_of(0, {0, 1, 2, 3}, {4, 5, 6});
  for (const Id spare : {4U, 5U, 6U}) {
    zero.receive(waits(spare, {1, 2, 3}), Time(1000));
  }
  for (const Id ended : {1U, 2U, 3U}) {
    zero.dead({ended}, Time(1000));
  }
  ASSERT_EQ(zero.world(), (World{2, {0, 4}}));
  MembershipMessage here;  // sent by the spare that was taken in
  here.kind = MembershipMessage::Kind::beat;
  here.from = 4;
  here.epoch = 2;
  zero.receive(here, Time(1100));
  zero.tick(Time(1200));
  EXPECT_FALSE(zero.agreeing()) << "the spare has not learnt of its place yet";
  here.kind = MembershipMessage::Kind::ready;
  here.step = 1;
  zero.receive(here, Time(1300));
  zero.ready(1);
  EXPECT_EQ(zero.delivered(), 1U);
  zero.tick(Time(1400));
  EXPECT_TRUE(zero.agreeing()) << "places are free";
}

// Mutation tried: a spare counts that was heard at any time.
TEST(MembershipSpares, OneThatIsSilentIsNotTaken) {
  for (const int later : {500, 1500}) {
    Membership zero = one_of(0, {0, 1}, {2});
    zero.receive(waits(2, {}), Time(1000));
    for (int passed = 0; passed < later; passed += 100) {
      zero.tick(Time(1000 + passed));
    }
    zero.dead({1}, Time(1000 + later));
    EXPECT_EQ(members(zero), later < 1000 ? (std::vector<Id>{0, 2}) : std::vector<Id>{0});
  }
}

TEST(MembershipSpares, OneThatWasNotLetInIsNotTaken) {
  Membership zero(0, World{1, {0, 1}}, 0, {.full = 2, .start = {0, 1, 2}, .spares = {2}}, Time(1000));
  zero.receive(waits(2, {}), Time(1000));
  zero.dead({1}, Time(1000));
  EXPECT_EQ(members(zero), std::vector<Id>{0});
}

// The lower member may have left this one out and gone on with the spare. Mutation tried: it does not look at spares.
TEST(MembershipSpares, WhoIsLeftAloneAsksThoseThatWait) {
  Membership one = one_of(1, {0, 1}, {2});
  one.receive(waits(2, {}), Time(1000));
  one.dead({0}, Time(1100));
  EXPECT_TRUE(one.agreeing());
  one.receive(waits(2, {0}), Time(1200));
  EXPECT_EQ(one.world(), (World{2, {1, 2}}));
}

TEST(MembershipSpares, OneKnowsWhenNobodyIsLeft) {
  Membership two(2, World{}, 0, {.full = 2, .start = {0, 1, 2, 3}, .spares = {2, 3}}, Time(1000));
  two.wait_among({0, 1, 2, 3});
  EXPECT_FALSE(two.alone());
  two.receive(waits(3, {0}), Time(1000));
  two.dead({0}, Time(1000));
  two.dead({1}, Time(1000));
  EXPECT_FALSE(two.alone()) << "1 may have taken the other spare in";
  two.receive(waits(3, {0, 1}), Time(1100));
  EXPECT_TRUE(two.alone());
}

// The membership of rank 0, with three members and 7, which joins.
class Joins : public ::testing::Test {
 protected:
  Joins() {
    zero.let_in(7);
    MembershipMessage here;
    here.epoch = 1;
    for (const Id who : {1U, 2U}) {
      here.from = who;
      here.kind = MembershipMessage::Kind::ready;
      here.step = 1;
      zero.receive(here, Time(1000));
    }
    zero.ready(1);
  }
  bool is_taken(std::vector<Id> known) {
    zero.receive(waits(7, {}, std::move(known)), Time(1100));
    zero.tick(Time(1100));
    return zero.agreeing();
  }
  Membership zero = one_of(0, {0, 1, 2}, {});
};

// A process that wakes up and finds all others ended would not ask a joiner that it does not know. Mutation tried:
// without is_known_to_all().
TEST_F(Joins, OneIsTakenOnceAllThatHaveNotEndedKnowIt) {
  EXPECT_FALSE(is_taken({0, 1}));
  EXPECT_TRUE(is_taken({0, 1, 2}));
}

// Mutation tried: only the members of the start must know it.
TEST_F(Joins, OthersThatJoinMustKnowItToo) {
  zero.receive(waits(8, {}), Time(1000));
  EXPECT_FALSE(is_taken({0, 1, 2}));
  EXPECT_TRUE(is_taken({0, 1, 2, 8}));
}

TEST_F(Joins, WhoHasEndedNeedsNotKnowIt) {
  zero.receive(waits(7, {}, {0, 1}), Time(1000));
  zero.dead({2}, Time(1000));
  MembershipMessage said;
  said.kind = MembershipMessage::Kind::promise;
  said.from = 1;
  said.epoch = 1;
  said.ballot = {1, 0};
  said.dead = {{2}};
  said.step = 1;
  said.ready = {1, 1, 1};
  zero.receive(said, Time(1000));
  said.kind = MembershipMessage::Kind::accepted;
  zero.receive(said, Time(1000));
  EXPECT_EQ(zero.world(), (World{2, {0, 1, 7}}));
}

TEST_F(Joins, ItIsToldByEachThatItIsKnown) {
  static_cast<void>(zero.take_messages());
  zero.receive(waits(7, {}), Time(1000));
  const auto said = zero.take_messages();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].to, 7U);
  EXPECT_EQ(said[0].message.kind, MembershipMessage::Kind::knows);

  Membership seven(7, World{}, 0, {.start = {0, 1, 2}}, Time(1000));
  seven.wait_among({0, 1, 2});
  seven.receive(said[0].message, Time(1000));
  seven.tick(Time(1200));
  const auto waiting = seven.take_messages();
  ASSERT_EQ(waiting.size(), 3U);
  EXPECT_EQ(waiting[2].message.known, std::vector<Id>{0});
}

// Mutation tried: possibly_taken_in() asks spares alone.
TEST_F(Joins, WhoIsLeftAloneAsksIt) {
  Membership two = one_of(2, {0, 1, 2}, {});
  two.receive(waits(7, {}), Time(1000));
  two.dead({0}, Time(1100));
  two.dead({1}, Time(1100));
  EXPECT_TRUE(two.agreeing());
  two.receive(waits(7, {0, 1}, {2}), Time(1200));
  EXPECT_EQ(members(two), std::vector<Id>{2}) << "no process has let 7 in";
}

MembershipMessage decided(World world) {
  MembershipMessage said;
  said.kind = MembershipMessage::Kind::decided;
  said.from = 0;
  said.decision = Decision{std::move(world), 0};
  return said;
}

// A stopped process that was left out once is not asked again if it knew that it was a member: otherwise it may still
// wait. Mutations tried: without gone_; with all that were ever members.
TEST(MembershipSpares, OneThatKnewThatItWasAMemberIsNotAsked) {
  for (const bool knew : {false, true}) {
    Membership one = one_of(1, {0, 1}, {2});
    one.receive(decided({2, {0, 1, 2}}), Time(1000));
    if (knew) {
      MembershipMessage here;
      here.from = 2;
      here.epoch = 2;
      one.receive(here, Time(1000));
    }
    one.receive(decided({3, {0, 1}}), Time(1000));
    one.dead({0}, Time(1100));
    EXPECT_EQ(one.agreeing(), !knew);
  }
}

// Its message that it waits came late. Mutation tried: it goes on in that world.
TEST(MembershipSpares, OneThatWasLeftOutMeanwhileIsOut) {
  Membership two(2, World{}, 0, {.full = 2, .start = {0, 1, 2}, .spares = {2}}, Time(1000));
  two.receive(decided({2, {0, 2}}), Time(1000));
  EXPECT_FALSE(two.expelled());
  two.receive(decided({4, {1, 2}}), Time(1000));
  EXPECT_TRUE(two.expelled());
}

}  // namespace
}  // namespace gradwire::membership
