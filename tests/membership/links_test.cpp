// Tests what happens to live processes while links between them are cut.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/membership/hands.hpp"

namespace gradwire::membership {
namespace {

using Link = std::pair<Id, Id>;

// Lets `milliseconds` pass in which no message passes over the links `down` in either direction.
void pass_without(Hands& hands, int milliseconds, const std::set<Link>& down) {
  for (int passed = 0; passed < milliseconds; passed += 50) {
    hands.tick();
    hands.carry([&](Id to, const MembershipMessage& message) {
      return !down.contains({to, message.from}) && !down.contains({message.from, to});
    });
  }
}

void cut(Hands& hands, const std::set<Link>& links) {
  for (const auto& [one, other] : links) {
    hands[one].cut(other, hands.now());
    hands[other].cut(one, hands.now());
  }
}

// 2 and 4 hear 3 all the time. Mutation tried: a second process that cannot hear 3 is enough to call it silent.
TEST(MembershipLinks, WhomOthersHearIsWaitedForThoughTwoOfItsLinksAreDown) {
  Hands hands(5);
  const std::set<Link> down{{0, 3}, {1, 3}};
  pass_without(hands, 1100, down);
  cut(hands, down);
  pass_without(hands, 700, down);
  pass_without(hands, 2000, {});
  for (std::size_t who = 0; who < 5; ++who) {
    EXPECT_EQ(members(hands[who]), (std::vector<Id>{0, 1, 2, 3, 4})) << who;
    EXPECT_FALSE(hands[who].agreeing()) << who;
  }
}

// Two processes have only this one link. Mutation tried: a process always waits for the other end of a cut link.
TEST(MembershipLinks, WhomNobodyElseHearsIsNotWaitedFor) {
  for (const Id others : {1U, 2U, 4U}) {
    Hands hands(static_cast<int>(others) + 1);
    std::set<Link> down;
    std::vector<Id> left;
    for (Id who = 0; who < others; ++who) {
      down.insert({who, others});
      left.push_back(who);
    }
    pass_without(hands, 1100, down);
    cut(hands, down);
    pass_without(hands, 100, down);
    EXPECT_EQ(members(hands[0]), left);
  }
}

}  // namespace
}  // namespace gradwire::membership
