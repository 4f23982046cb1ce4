// Tests which world comes next, and who agrees on it.
#include <gtest/gtest.h>

#include <vector>

#include "tests/membership/hands.hpp"

namespace gradwire::membership {
namespace {

// 0, 1 and 2 leave out 3 and 4, which they cannot hear; then 0 and 1 end. 3 and 4 know that, and 2 lives on.
TEST(Membership, ThoseLeftOutAreNoMajorityOfTheRest) {
  Hands hands(5);
  hands.pass(7, {0, 1, 2});
  ASSERT_EQ(members(hands[2]), (std::vector<Id>{0, 1, 2}));
  for (const std::size_t who : {2U, 3U, 4U}) {
    hands[who].dead({0}, hands.now());
    hands[who].dead({1}, hands.now());
  }
  hands.talk({2});
  EXPECT_EQ(members(hands[2]), (std::vector<Id>{2}));
  hands.pass(20, {3, 4});
  EXPECT_TRUE(hands[3].agreeing());
  EXPECT_EQ(hands[3].world().epoch, 0U);
  hands.pass(2, {2, 3, 4});  // they hear each other again
  EXPECT_TRUE(hands[3].expelled());
  EXPECT_TRUE(hands[4].expelled());
  EXPECT_EQ(members(hands[2]), (std::vector<Id>{2}));
}

// All processes were stopped at once, or their clocks jumped: they have not spoken since, and nobody was silent.
// Mutations tried: all time counts; only the time before the jump is forgotten.
TEST(Membership, WhoDidNotRunKnowsNothingOfTheSilenceOfOthers) {
  for (const Time jump : {Time(8000), Time(3'600'000), Time(-30'000)}) {
    Hands hands(3);
    hands.pass(1, {0, 1, 2});
    for (int i = 0; i < 80; ++i) {  // for 4 s they hear nothing of each other
      hands.tick();
    }
    hands.carry([](Id, const MembershipMessage&) { return false; });
    hands.tick(jump);
    for (int i = 0; i < 80; ++i) {
      hands.tick();
    }
    for (const std::size_t who : {0U, 1U, 2U}) {
      EXPECT_FALSE(hands[who].agreeing()) << jump.count();
    }
    for (int i = 0; i < 40; ++i) {  // from here on silence counts
      hands.tick();
    }
    EXPECT_TRUE(hands[0].agreeing());
  }
}

// A process that runs late now and then does not count as one that slept: otherwise it would never miss anybody.
TEST(Membership, WhoRunsRarelyMissesOthersAllTheSame) {
  Hands hands(2);
  for (int i = 0; i < 15; ++i) {
    hands.tick(Time(400));
  }
  EXPECT_EQ(members(hands[0]), std::vector<Id>{0});
  EXPECT_TRUE(hands[1].agreeing());
}

// 0 decides with 1 and 2, and falls silent before it can say so: 1 must not decide otherwise.
TEST(Membership, WhatMayHaveBeenDecidedIs) {
  Hands hands(5);
  for (const std::size_t who : {0U, 1U, 2U, 3U}) {
    hands[who].dead({4}, hands.now());
  }
  hands.carry([](Id to, const MembershipMessage& message) {
    return message.kind != MembershipMessage::Kind::decided &&
           (message.kind != MembershipMessage::Kind::accept || to != 3);
  });
  ASSERT_EQ(hands[0].world(), (World{1, {0, 1, 2, 3}}));
  ASSERT_EQ(hands[1].world().epoch, 0U);
  for (int i = 0; i < 7 && hands[3].world().epoch == 0; ++i) {
    hands.pass(1, {1, 2, 3});
  }
  EXPECT_EQ(hands[3].world(), hands[0].world());
  hands.pass(13, {1, 2, 3});
  EXPECT_EQ(members(hands[1]), (std::vector<Id>{1, 2, 3}));  // and then the next world is without 0
}

// A process that has promised a ballot answers no lower one, and delivers nothing more.
TEST(Membership, APromiseHolds) {
  Hands hands(3);
  MembershipMessage prepare;
  prepare.kind = MembershipMessage::Kind::prepare;
  prepare.from = 1;
  prepare.ballot = {2, 1};
  hands[2].receive(prepare, hands.now());
  EXPECT_TRUE(hands[2].agreeing());
  std::vector<Membership::Outgoing> said = hands[2].take_messages();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].message.kind, MembershipMessage::Kind::promise);
  prepare.from = 0;
  prepare.ballot = {2, 0};
  hands[2].receive(prepare, hands.now());
  MembershipMessage accept = prepare;
  accept.kind = MembershipMessage::Kind::accept;
  accept.decision = Decision{{1, {0, 2}}, 0};
  hands[2].receive(accept, hands.now());
  said = hands[2].take_messages();
  ASSERT_EQ(said.size(), 2U);
  for (const Membership::Outgoing& out : said) {
    EXPECT_EQ(out.message.kind, MembershipMessage::Kind::refuse);
    EXPECT_EQ(out.message.ballot, (Ballot{2, 1}));
  }
}

// 2 ends when the next world, which includes it, is already chosen.
TEST(Membership, WhoEndsMeanwhileIsMissedAtOnce) {
  Hands hands(4);
  for (const std::size_t who : {0U, 1U, 2U}) {
    hands[who].dead({3}, hands.now());
  }
  hands.carry([&](Id /*to*/, const MembershipMessage& message) {
    if (message.kind == MembershipMessage::Kind::accept) {
      hands[0].dead({2}, hands.now());
    }
    return true;
  });
  hands.talk({0, 1});
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1}));
  EXPECT_EQ(members(hands[1]), (std::vector<Id>{0, 1}));
}

// Lets `who` join in the change of world that a slow step causes.
void let_join(Hands& hands, Id processes, Id who) {
  for (Id other = 0; other < processes; ++other) {
    MembershipMessage said;
    said.kind = MembershipMessage::Kind::waits;
    said.from = who;
    for (Id one = 0; one < processes; ++one) {
      said.known.push_back(one);
    }
    hands[other].receive(said, hands.now());
  }
  hands[0].let_in(who);
  hands[0].missed(1, hands.now());
}

// 0 and 1 decide that 7 joins, and end; 2 and 3 agree on another world before they hear of that decision.
TEST(Membership, ThoseWhoEndedAreNotHeardAfterwards) {
  Hands hands(4, 1);
  let_join(hands, 4, 7);
  MembershipMessage late;
  hands.carry([&](Id to, const MembershipMessage& message) {
    if (message.kind == MembershipMessage::Kind::decided && to == 3) {
      late = message;
    }
    return to < 4 && (to < 2 || (message.kind != MembershipMessage::Kind::accept &&
                                 message.kind != MembershipMessage::Kind::decided));
  });
  ASSERT_EQ(hands[0].world(), (World{2, {0, 1, 2, 3, 7}}));
  for (const std::size_t who : {2U, 3U}) {
    for (const Id dead : {0U, 1U}) {
      hands[who].dead({dead, 1}, hands.now());
    }
  }
  hands.carry([](Id to, const MembershipMessage& message) {
    return (to == 2 || to == 3) && message.kind != MembershipMessage::Kind::decided;
  });
  const World next = hands[2].world();
  EXPECT_EQ(next.epoch, 2U);
  hands[3].receive(late, hands.now());
  hands.pass(1, {2, 3});
  EXPECT_EQ(hands[3].world(), hands[2].world());
}

// 1 is an epoch ahead of 2 when it begins to agree, so its first messages are lost on 2.
TEST(Membership, WhoIsAnEpochBehindIsAskedAgain) {
  Hands hands(3);
  hands[1].missed(2, hands.now());
  hands.carry([](Id to, const MembershipMessage& message) {
    return to != 2 || message.kind != MembershipMessage::Kind::decided;
  });
  ASSERT_EQ(hands[1].world().epoch, 1U);
  ASSERT_EQ(hands[2].world().epoch, 0U);
  hands[1].dead({0}, hands.now());
  hands[2].dead({0}, hands.now());
  hands.pass(2, {1, 2});
  EXPECT_EQ(members(hands[1]), (std::vector<Id>{1, 2}));
  EXPECT_EQ(hands[2].world(), hands[1].world());
}

// A step that was slow once is no reason to leave out its rank later.
TEST(Membership, AComplaintEndsWithTheNextStep) {
  Hands hands(3);
  hands[1].missed(2, hands.now());
  hands.talk({0, 1, 2});
  ASSERT_EQ(members(hands[0]).size(), 3U);
  for (std::size_t who = 0; who < 3; ++who) {
    hands[who].ready(1);
  }
  hands.talk({0, 1, 2});
  ASSERT_EQ(hands[1].delivered(), 1U);
  hands[1].missed(2, hands.now());
  hands.talk({0, 1, 2});
  EXPECT_EQ(members(hands[0]).size(), 3U);
  hands[1].missed(2, hands.now());  // there was no step in between
  hands.talk({0, 1, 2});
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1}));
}

// A process that learns in a ballot that another has ended accepts no more messages of the ended one.
TEST(Membership, ABallotSaysWhoHasEnded) {
  Hands hands(3);
  MembershipMessage said;
  said.kind = MembershipMessage::Kind::prepare;
  said.from = 1;
  said.ballot = {1, 1};
  said.dead = {{0}};
  hands[2].receive(said, hands.now());
  MembershipMessage late;
  late.kind = MembershipMessage::Kind::decided;
  late.decision = Decision{{1, {0, 1, 2, 7}}, 0};
  hands[2].receive(late, hands.now());
  EXPECT_EQ(hands[2].world().epoch, 0U);
  hands[1].dead({0}, hands.now());
  hands.carry([&](Id /*to*/, const MembershipMessage& message) {
    EXPECT_TRUE(message.kind != MembershipMessage::Kind::prepare || message.dead == std::vector<ProcessEnd>{{0}});
    return true;
  });
}

// 1 enters the epoch too late for the first suspicion, and the lowest must hear of it.
TEST(Membership, SuspicionsAreSaidAgain) {
  Hands hands(3);
  hands[2].missed(1, hands.now());
  hands.carry([](Id to, const MembershipMessage& message) {
    return to != 0 || message.kind != MembershipMessage::Kind::suspect;
  });
  EXPECT_EQ(hands[0].world().epoch, 0U);
  for (int i = 0; i < 10; ++i) {
    hands.tick();
    hands.talk({0, 1, 2});
  }
  EXPECT_EQ(hands[0].world().epoch, 1U);
  EXPECT_EQ(members(hands[2]).size(), 3U);
}

// 7 must not tell 2 of a world that the others can still decide against.
TEST(Membership, WhoJoinsIsToldOnceAllKnow) {
  Hands hands(3);
  let_join(hands, 3, 7);
  bool told = false;
  hands.carry([&](Id to, const MembershipMessage& message) {
    told = told || (to == 7 && message.kind == MembershipMessage::Kind::decided);
    return to != 2 || message.kind != MembershipMessage::Kind::decided;
  });
  ASSERT_EQ(hands[0].world().epoch, 1U);
  ASSERT_EQ(hands[2].world().epoch, 0U);
  EXPECT_FALSE(told);
  for (int i = 0; i < 10 && !told; ++i) {
    hands.tick();
    hands.carry([&](Id to, const MembershipMessage& message) {
      told = told || (to == 7 && message.kind == MembershipMessage::Kind::decided);
      return true;
    });
  }
  EXPECT_EQ(hands[2].world().epoch, 1U);
  EXPECT_TRUE(told);
}

TEST(Membership, WhoIsHeardAndHearsNothingIsLeftOut) {
  Hands hands(3);
  hands[0].missed(2, hands.now());
  for (int round = 0; round < 200; ++round) {
    hands.carry([](Id to, const MembershipMessage& message) { return to != 2 || message.from != 0; });
    hands.tick();
  }
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1}));
  EXPECT_EQ(members(hands[1]), (std::vector<Id>{0, 1}));
  EXPECT_TRUE(hands[2].expelled());
}

TEST(Membership, ThoseWhoJoinAreNeverTheMajority) {
  Hands hands(2);
  for (const Id who : {7U, 8U, 9U}) {
    let_join(hands, 2, who);
  }
  hands.talk({0, 1});
  hands.pass(30, {0, 1});  // the joiners never answer
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1}));
  EXPECT_EQ(hands[1].world(), hands[0].world());
}

// 1 hears only 0, and all others hear each other: 1 goes, and nobody else.
TEST(Membership, TheOneThatMostCannotHearGoes) {
  Hands hands(5);
  for (int round = 0; round < 400; ++round) {
    hands.carry([](Id to, const MembershipMessage& message) {
      return (to != 1 && message.from != 1) || to + message.from == 1;
    });
    hands.tick();
  }
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 2, 3, 4}));
}

TEST(Membership, OfTwoTheLowerGoesOnWithoutASilentOneAndNotTheOther) {
  Hands hands(2);
  hands.pass(7, {0});
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0}));
  Hands again(2);
  again.pass(7, {1});
  EXPECT_TRUE(again[1].agreeing());
  again[1].dead({0}, again.now());
  EXPECT_EQ(members(again[1]), (std::vector<Id>{1}));
}

TEST(Membership, ASilentOneIsMissedInTime) {
  Hands hands(8);
  hands.pass(4, {0, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(members(hands[0]).size(), 8U);
  hands.pass(2, {0, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(members(hands[0]).size(), 7U);
}

// 2 slept, and finds that all other members of the next world have ended. 3 was left out of that world. Mutation tried:
// 3 does not tell what was decided.
TEST(Membership, WhoWasLeftOutTellsOthersWhatWasDecided) {
  Hands hands(4);
  MembershipMessage decided;
  decided.kind = MembershipMessage::Kind::decided;
  decided.from = 1;
  decided.decision = Decision{{1, {0, 1, 2}}, 0};
  hands[3].receive(decided, hands.now());
  ASSERT_TRUE(hands[3].expelled());
  hands[0].dead({1}, hands.now());
  hands[0].dead({2}, hands.now());
  hands.pass(2, {0, 3});
  EXPECT_EQ(hands[0].world(), (World{2, {0}}));
}

}  // namespace
}  // namespace gradwire::membership
