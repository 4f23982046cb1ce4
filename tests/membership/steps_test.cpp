// Tests which steps count.
#include <gtest/gtest.h>

#include <vector>

#include "tests/membership/hands.hpp"

namespace gradwire::membership {
namespace {

TEST(Membership, AStepIsDeliveredOnceAllHoldIt) {
  Hands hands(3);
  hands[0].ready(1);
  hands[1].ready(1);
  hands.talk({0, 1, 2});
  EXPECT_EQ(hands[0].delivered(), 0U);
  EXPECT_EQ(hands[0].awaited_members(), std::vector<Id>{2});
  hands[2].ready(1);
  hands.talk({0, 1, 2});
  for (std::size_t who = 0; who < 3; ++who) {
    EXPECT_EQ(hands[who].delivered(), 1U) << who;
  }
}

// 1 has heard that all hold the step, and 2 has not when 0 ends: 2 must deliver it too.
TEST(Membership, WhatOneSurvivorDeliveredAllDeliver) {
  Hands hands(3);
  for (std::size_t who = 0; who < 3; ++who) {
    hands[who].ready(1);
  }
  for (const Membership::Outgoing& out : hands[0].take_messages()) {
    if (out.to == 1) {
      hands[1].receive(out.message, hands.now());
    }
  }
  hands.talk({1, 2});
  ASSERT_EQ(hands[1].delivered(), 1U);
  ASSERT_EQ(hands[2].delivered(), 0U);
  hands[1].dead({0}, hands.now());
  hands[2].dead({0}, hands.now());
  hands.talk({1, 2});
  EXPECT_EQ(hands[1].world(), (World{1, {1, 2}}));
  EXPECT_EQ(hands[2].world(), (World{1, {1, 2}}));
  EXPECT_EQ(hands[2].delivered(), 1U);
}

// 0 knew that all hold the step, delivered it and ended. None of the others knows it alone, but together they do.
TEST(Membership, WhatOneWhoEndedDeliveredAllDeliver) {
  Hands hands(4);
  for (const std::size_t who : {0U, 1U, 2U, 3U}) {
    hands[who].ready(1);
  }
  hands.carry([](Id to, const MembershipMessage& message) {
    return to == 0 || (to == 1 && message.from == 0) || (to == 2 && message.from == 3) ||
           (to == 3 && message.from == 2);
  });
  ASSERT_EQ(hands[0].delivered(), 1U);
  for (const std::size_t who : {1U, 2U, 3U}) {
    ASSERT_EQ(hands[who].delivered(), 0U);
    hands[who].dead({0}, hands.now());
  }
  hands.talk({1, 2, 3});
  for (const std::size_t who : {1U, 2U, 3U}) {
    EXPECT_EQ(hands[who].world(), (World{1, {1, 2, 3}}));
    EXPECT_EQ(hands[who].delivered(), 1U) << who;
  }
}

// 0 alone knew that all hold the step, and it left in good order.
TEST(Membership, WhoLeavesSaysWhatItDelivered) {
  Hands hands(3);
  for (const std::size_t who : {0U, 1U, 2U}) {
    hands[who].ready(1);
  }
  hands.carry([](Id to, const MembershipMessage& /*message*/) { return to == 0; });
  ASSERT_EQ(hands[0].delivered(), 1U);
  hands[0].leave();
  hands.carry([](Id to, const MembershipMessage& message) { return to != 0 && message.from == 0; });
  EXPECT_EQ(hands[1].delivered(), 1U);
  EXPECT_EQ(hands[2].delivered(), 1U);

  // The same holds if 0 leaves while the others agree on the next world.
  Hands agreeing(3);
  for (const std::size_t who : {0U, 1U, 2U}) {
    agreeing[who].ready(1);
  }
  agreeing.carry([](Id to, const MembershipMessage& /*message*/) { return to == 0; });
  agreeing[0].leave();
  for (const std::size_t who : {1U, 2U}) {
    agreeing[who].missed(0, agreeing.now());
  }
  agreeing.carry([](Id to, const MembershipMessage& message) { return to != 0 && message.from == 0; });
  ASSERT_EQ(agreeing[1].delivered(), 0U);
  for (const std::size_t who : {1U, 2U}) {
    agreeing[who].dead({0}, agreeing.now());
  }
  agreeing.pass(10, {1, 2});
  for (const std::size_t who : {1U, 2U}) {
    EXPECT_EQ(agreeing[who].world().members, (std::vector<Id>{1, 2}));
    EXPECT_EQ(agreeing[who].delivered(), 1U) << who;
  }
}

// Nothing is delivered between a promise and the decision, since the others were told what this process had delivered.
TEST(Membership, NothingIsDeliveredWhileTheyAgree) {
  Hands hands(3);
  hands[1].ready(1);
  hands[1].missed(0, hands.now());
  static_cast<void>(hands[1].take_messages());
  MembershipMessage late;
  late.kind = MembershipMessage::Kind::ready;
  late.step = 1;
  for (const Id from : {0U, 2U}) {
    late.from = from;
    hands[1].receive(late, hands.now());
  }
  EXPECT_EQ(hands[1].delivered(), 0U);
}

}  // namespace
}  // namespace gradwire::membership
