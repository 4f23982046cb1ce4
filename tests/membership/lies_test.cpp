// Tests messages that only a broken or hostile member sends: each is refused, and its sender is distrusted.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "tests/membership/hands.hpp"

namespace gradwire::membership {
namespace {

// The membership of process 0 in a world of 0, 1 and 2 that has delivered two steps; 0 holds the third one, and 5 waits
// to join.
class Lies : public ::testing::Test {
 protected:
  Lies() {
    for (std::uint64_t step = 1; step <= 2; ++step) {
      for (const Id who : {1U, 2U}) {
        MembershipMessage here = of(MembershipMessage::Kind::ready, who);
        here.step = step;
        zero.receive(here, Time(1000));
      }
      zero.ready(step);
    }
    zero.ready(3);
    zero.receive(of(MembershipMessage::Kind::waits, 5), Time(1000));
    static_cast<void>(zero.take_messages());
  }

  static MembershipMessage of(MembershipMessage::Kind kind, Id from) {
    MembershipMessage said;
    said.kind = kind;
    said.from = from;
    said.epoch = kind == MembershipMessage::Kind::waits ? 0 : 1;
    return said;
  }
  static MembershipMessage decides(Decision decision, MembershipMessage::Kind kind = MembershipMessage::Kind::decided) {
    MembershipMessage said = of(kind, 2);
    said.decision = std::move(decision);
    return said;
  }

  // The only effect of the message is that 2 has to go.
  void expect_a_lie(const MembershipMessage& message) {
    zero.receive(message, Time(1000));
    const std::vector<Distrusted> liars = zero.take_distrusted();
    ASSERT_EQ(liars.size(), 1U);
    EXPECT_EQ(liars[0].who, 2U);
    EXPECT_EQ(zero.world(), (World{1, {0, 1, 2}}));
    EXPECT_EQ(zero.delivered(), 2U);
    EXPECT_TRUE(zero.agreeing());
  }
  void expect_believed(const MembershipMessage& message) {
    zero.receive(message, Time(1000));
    for (const Distrusted& liar : zero.take_distrusted()) {
      ADD_FAILURE() << liar.why;
    }
  }

  Membership zero{0, World{1, {0, 1, 2}}, 0, MembershipSettings{}, Time(1000)};
};

TEST_F(Lies, AStepThatNotAllHold) {
  MembershipMessage said = of(MembershipMessage::Kind::beat, 2);
  said.step = 4;
  expect_a_lie(said);
}

TEST_F(Lies, AStepFarAway) {
  for (const auto kind : {MembershipMessage::Kind::beat, MembershipMessage::Kind::confirm,
                          MembershipMessage::Kind::confirmed, MembershipMessage::Kind::ready}) {
    Membership fresh{0, World{1, {0, 1, 2}}, 0, MembershipSettings{}, Time(1000)};
    MembershipMessage said = of(kind, 2);
    said.step = 1ULL << 63;
    fresh.receive(said, Time(1000));
    EXPECT_EQ(fresh.delivered(), 0U);
    EXPECT_EQ(fresh.take_distrusted().size(), 1U);
  }
}

TEST_F(Lies, AStepThatThisProcessHolds) {
  MembershipMessage said = of(MembershipMessage::Kind::beat, 2);
  said.step = 3;
  expect_believed(said);
  EXPECT_EQ(zero.delivered(), 3U);
}

TEST_F(Lies, AWorldOfNobody) { expect_a_lie(decides({{2, {}}, 2})); }
TEST_F(Lies, AWorldWithoutANumber) {
  expect_a_lie(decides({{std::numeric_limits<std::uint32_t>::max(), {0, 1, 2}}, 2}));
}
TEST_F(Lies, AWorldThatCannotBeThisProcesss) { expect_a_lie(decides({{3, {0, 1, 2}}, 2})); }
TEST_F(Lies, AWorldWithStepsThatNobodyMade) { expect_a_lie(decides({{2, {0, 1}}, ~0ULL})); }
TEST_F(Lies, AWorldWithoutStepsThatCount) { expect_a_lie(decides({{2, {0, 1}}, 1})); }
TEST_F(Lies, AWorldOfStrangers) { expect_a_lie(decides({{2, {0, 99}}, 2})); }
TEST_F(Lies, AWorldOfThoseThatWait) { expect_a_lie(decides({{2, {5}}, 2})); }

// It could be true, but no process that had a part in it says so. Mutation tried: whoever says so is believed.
TEST_F(Lies, AWorldOfOthersAsOneSaysThatWaits) {
  MembershipMessage said = decides({{2, {0, 1}}, 2});
  said.from = 5;
  said.epoch = 0;
  zero.receive(said, Time(1000));
  EXPECT_EQ(zero.world(), (World{1, {0, 1, 2}}));
  said.decision->world.members = {0, 1, 5};
  zero.receive(said, Time(1000));
  EXPECT_EQ(zero.world().epoch, 2U) << "a process that was taken in may tell this";
}

TEST_F(Lies, ADecisionOfNothing) { expect_a_lie(of(MembershipMessage::Kind::decided, 2)); }
TEST_F(Lies, AnAcceptedWorldOfStrangers) {
  MembershipMessage said = decides({{2, {0, 99}}, 2}, MembershipMessage::Kind::accept);
  said.ballot = {1, 2};
  expect_a_lie(said);
}

TEST_F(Lies, ABallotFarAway) {
  MembershipMessage said = of(MembershipMessage::Kind::prepare, 2);
  said.ballot = {std::numeric_limits<std::uint64_t>::max(), 2};
  expect_a_lie(said);
}

TEST_F(Lies, ABallotOfAnother) {
  MembershipMessage said = of(MembershipMessage::Kind::prepare, 2);
  said.ballot = {1, 1};
  expect_a_lie(said);
}

TEST_F(Lies, APromiseOfStepsThatNobodyMade) {
  for (const bool ready : {false, true}) {
    zero.missed(1, Time(1000));
    MembershipMessage said = of(MembershipMessage::Kind::promise, 2);
    said.ballot = {1, 0};
    said.step = ready ? 2 : 4;
    said.ready = {3, 3, ready ? 5U : 3U};
    zero.receive(said, Time(1000));
    EXPECT_EQ(zero.take_distrusted().size(), ready ? 0U : 1U) << "the sender is distrusted once";
    EXPECT_EQ(zero.delivered(), 2U);
    EXPECT_EQ(zero.world().epoch, 1U);
  }
}

TEST_F(Lies, APromiseForTooFew) {
  zero.missed(1, Time(1000));
  MembershipMessage said = of(MembershipMessage::Kind::promise, 2);
  said.ballot = {1, 0};
  said.step = 2;
  expect_a_lie(said);
}

// A process believes that another has ended only once the other is silent.
TEST_F(Lies, AnEndOfOneThatLives) {
  Hands hands(3, 1);
  MembershipMessage said = of(MembershipMessage::Kind::suspect, 2);
  said.dead = {{1, 1, 0}};
  hands[0].receive(said, hands.now());
  hands.pass(3, {0, 1, 2});
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1, 2}));
  EXPECT_FALSE(hands[0].agreeing());

  Hands again(3, 1);
  again[0].receive(said, again.now());
  again.pass(3, {0, 2});  // long before 1 would count as silent
  EXPECT_EQ(members(again[0]), (std::vector<Id>{0, 2}));
}

// The others leave the liar out at once.
TEST_F(Lies, WhoLiesGoesAndTheOthersGoOn) {
  Hands hands(3, 1);
  MembershipMessage said = of(MembershipMessage::Kind::beat, 2);
  said.step = 1ULL << 63;
  hands[0].receive(said, hands.now());
  hands[1].receive(said, hands.now());
  hands.talk({0, 1, 2});
  EXPECT_EQ(members(hands[0]), (std::vector<Id>{0, 1}));
  EXPECT_EQ(hands[1].world(), hands[0].world());
  EXPECT_TRUE(hands[2].expelled());
}

}  // namespace
}  // namespace gradwire::membership
