// Tests when a step counts for good, and what the end of a process tells about the step.
#include <gtest/gtest.h>

#include <vector>

#include "tests/membership/hands.hpp"

namespace gradwire::membership {
namespace {

// Makes all processes hold a step; those in `delivers` learn that all hold it.
void hold(Hands& hands, std::size_t processes, const std::set<Id>& delivers) {
  for (std::size_t who = 0; who < processes; ++who) {
    hands[who].ready(1);
  }
  hands.carry([&](Id to, const MembershipMessage& /*message*/) { return delivers.contains(to); });
}

TEST(MembershipConfirm, AStepCountsOnceAQuorumHasDeliveredIt) {
  Hands hands(3, 1);
  hold(hands, 3, {2});
  ASSERT_EQ(hands[2].delivered(), 1U);
  hands[2].confirm(1);
  EXPECT_EQ(hands[2].confirmed(), 0U);
  EXPECT_EQ(hands[2].unconfirmed(), (std::vector<Id>{0, 1}));
  hands.talk({1, 2});
  EXPECT_EQ(hands[2].confirmed(), 1U);
  EXPECT_EQ(hands[1].delivered(), 1U) << "1 holds the step, and has heard that it counts";
  EXPECT_EQ(hands[2].unconfirmed(), std::vector<Id>{});
}

// A process need not be asked for what it has said before: it may have left.
TEST(MembershipConfirm, LastWordsAreAnAnswer) {
  Hands hands(2, 1);
  hold(hands, 2, {0, 1});
  hands[0].leave();
  hands.talk({0, 1});
  hands[1].confirm(1);
  EXPECT_EQ(hands[1].confirmed(), 1U);
}

// Rank 0 is the lowest rank and half of the world, so it confirms alone: its end must tell rank 1 about the step.
TEST(MembershipConfirm, TheEndOfWhoConfirmedTellsOfTheStep) {
  for (const bool told : {false, true}) {
    Hands hands(2, 1);
    hold(hands, 2, {0});
    hands[0].confirm(1);
    ASSERT_EQ(hands[0].confirmed(), 1U);
    // The message that 0 holds the step is lost on the way.
    hands[1].dead({0, 1, told ? 1U : 0U}, hands.now());
    EXPECT_EQ(members(hands[1]), std::vector<Id>{1});
    EXPECT_EQ(hands[1].delivered(), told ? 1U : 0U);
  }
}

// A process that has promised not to deliver must not say that it did.
TEST(MembershipConfirm, WhoHasPromisedDoesNotConfirm) {
  Hands hands(3, 1);
  hold(hands, 3, {2});
  for (const std::size_t who : {0U, 1U}) {
    hands[who].missed(2, hands.now());
  }
  hands[2].confirm(1);
  hands.carry([](Id to, const MembershipMessage& message) {
    return message.kind == MembershipMessage::Kind::confirm ||
           (to == 2 && message.kind == MembershipMessage::Kind::confirmed);
  });
  EXPECT_EQ(hands[2].confirmed(), 0U);
  EXPECT_EQ(hands[0].delivered(), 0U);
}

// 0 and 1 have left 2 out, entered the next world and ended. Mutation tried: a process that ended in any world counts.
TEST(MembershipEnds, WhoEndedInALaterWorldHasNotJustEnded) {
  for (const std::uint32_t epoch : {1U, 2U}) {
    Hands hands(3, 1);
    for (const Id who : {0U, 1U}) {
      hands[2].dead({who, epoch, 0}, hands.now());
    }
    EXPECT_EQ(hands[2].agreeing(), epoch == 2);
    EXPECT_EQ(members(hands[2]), epoch == 2 ? (std::vector<Id>{0, 1, 2}) : std::vector<Id>{2});
    EXPECT_EQ(hands[2].went_on().has_value(), epoch == 2);
    hands.pass(8, {2});
    EXPECT_EQ(hands[2].hopeless(), epoch == 2);
  }
}

// It hears of the later world after all.
TEST(MembershipEnds, WhoCatchesUpGoesOn) {
  Hands hands(2, 1);
  hands[1].dead({0, 2, 0}, hands.now());
  ASSERT_TRUE(hands[1].agreeing());
  MembershipMessage late;
  late.kind = MembershipMessage::Kind::decided;
  late.from = 0;
  late.decision = Decision{{2, {0, 1}}, 0};
  hands[1].receive(late, hands.now());
  EXPECT_EQ(hands[1].world(), (World{3, {1}})) << "0 has ended in the world of 1";
}

// The decision was lost with the process that sent it. Mutation tried: a process that reaches too few others is
// hopeless at once.
TEST(MembershipEnds, WhoHeardNothingOfALaterWorldIsToldByOthersOfIt) {
  Hands hands(4, 1);
  for (const std::size_t who : {0U, 1U, 3U}) {
    hands[who].dead({2, 1, 0}, hands.now());
  }
  hands.carry([](Id to, const MembershipMessage& message) {
    return to != 1 || message.kind != MembershipMessage::Kind::decided;
  });
  ASSERT_EQ(members(hands[3]), (std::vector<Id>{0, 1, 3}));
  ASSERT_EQ(hands[1].world().epoch, 1U);
  for (const std::size_t who : {1U, 3U}) {
    hands[who].dead({0, 2, 0}, hands.now());
  }
  EXPECT_FALSE(hands[1].hopeless());
  hands.pass(1, {1, 3});
  EXPECT_EQ(hands[1].world(), (World{3, {1, 3}}));
  EXPECT_EQ(hands[3].world(), (World{3, {1, 3}}));
}

// A majority goes on even without word from them.
TEST(MembershipEnds, AQuorumNeedsNoWordOfThoseThatWentOn) {
  Hands hands(3, 1);
  for (const std::size_t who : {1U, 2U}) {
    hands[who].dead({0, 2, 0}, hands.now());
  }
  hands.talk({1, 2});
  EXPECT_EQ(hands[1].world(), (World{2, {1, 2}}));
  EXPECT_EQ(hands[2].world(), hands[1].world());
}

// A ballot passes on the epochs in which the ended processes were.
TEST(MembershipEnds, ABallotSaysWhereTheyWere) {
  Hands hands(4, 1);
  MembershipMessage said;
  said.kind = MembershipMessage::Kind::prepare;
  said.epoch = 1;
  said.from = 2;
  said.ballot = {1, 2};
  said.dead = {{0, 2, 0}, {1, 1, 0}};
  hands[3].receive(said, hands.now());
  EXPECT_EQ(hands[3].went_on(), (ProcessEnd{0, 2, 0}));
}

// Both ends of the broken link still reach the third process: nobody is left out if the link is mended in time.
// Mutations tried: a cut link counts as an end; nobody waits for a process that it cannot reach itself.
TEST(MembershipCut, OneThatOthersHearIsWaitedFor) {
  Hands hands(3, 1);
  hands[0].cut(2, hands.now());
  hands[2].cut(0, hands.now());
  const auto without = [](Id to, const MembershipMessage& message) { return to + message.from != 2 || to == 1; };
  for (int i = 0; i < 40; ++i) {
    hands.carry(without);
    hands.tick();
  }
  EXPECT_TRUE(hands[0].agreeing());
  EXPECT_EQ(hands[0].world().epoch, 1U);
  hands[0].back(2);
  hands[2].back(0);
  hands.pass(1, {0, 1, 2});
  EXPECT_EQ(hands[0].world(), (World{2, {0, 1, 2}}));

  for (int i = 0; i < 400; ++i) {  // the link breaks for good, so one of its ends is left out
    if (i == 1) {
      hands[0].cut(2, hands.now());
      hands[2].cut(0, hands.now());
    }
    hands.carry(without);
    hands.tick();
  }
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1}));
  EXPECT_TRUE(hands[2].expelled());
}

// A host has failed, and no witness reports it: all others have lost their links to it.
TEST(MembershipCut, OneThatNobodyReachesIsLeftOutAtOnce) {
  Hands hands(3, 1);
  for (const std::size_t who : {0U, 1U}) {
    hands[who].cut(2, hands.now());
  }
  hands.talk({0, 1});
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1}));
}

// With two hosts of one rank each, the lower rank goes on, and the other learns within a bounded time that it cannot.
TEST(MembershipCut, TheOtherHalfIsWithoutHope) {
  Hands hands(2, 1);
  hands[0].cut(1, hands.now());
  hands[1].cut(0, hands.now());
  EXPECT_EQ(members(hands[0]), std::vector<Id>{0});
  hands.pass(4, {1});
  EXPECT_FALSE(hands[1].hopeless());
  hands.pass(4, {1});
  EXPECT_TRUE(hands[1].hopeless());
  EXPECT_EQ(hands[1].awaited_members(), std::vector<Id>{0});
  hands.pass(1, {0, 1});  // the link works again
  EXPECT_TRUE(hands[1].expelled());
}

}  // namespace
}  // namespace gradwire::membership
