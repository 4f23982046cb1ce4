// Tests what is known about a process, and how it changes: the tables of membership/process_record.hpp.
#include "membership/process_record.hpp"

#include <gtest/gtest.h>

namespace gradwire::membership {
namespace {

using Place = ProcessRecord::Place;
using Life = ProcessRecord::Life;
using Answer = ProcessRecord::Answer;

constexpr std::uint32_t kEpoch = 3;  // epoch of the process that keeps the record

ProcessRecord at(Place place, Life life = Life::lives) {
  ProcessRecord process;
  process.place = place;
  process.life = life;
  return process;
}

TEST(ProcessRecord, AProcessWaitsJoinsIsToldAndStays) {
  ProcessRecord process;
  process.say_waits(Time(1), {4}, {5});
  EXPECT_EQ(process.place, Place::waiting);
  EXPECT_FALSE(process.is_member());
  process.join(true, 7);
  EXPECT_EQ(process.place, Place::joining);
  EXPECT_TRUE(process.is_member());
  EXPECT_EQ(process.joined_after, 7U);
  process.be_told();
  EXPECT_EQ(process.place, Place::joined);
  process.stay();
  EXPECT_EQ(process.place, Place::member);
  process.leave(Time(2));
  EXPECT_EQ(process.place, Place::outside);
  EXPECT_EQ(process.met, Time(2));
}

TEST(ProcessRecord, AProcessThatJoinsTellsNobodyThatJoinsWithIt) {
  ProcessRecord process;
  process.join(false, 7);
  EXPECT_EQ(process.place, Place::joined);
}

TEST(ProcessRecord, OnlyAMemberThatHasSpokenIsGoneForGood) {
  ProcessRecord silent = at(Place::joined);
  silent.leave(Time(1));
  EXPECT_FALSE(silent.gone) << "it may still wait";
  ProcessRecord known = at(Place::member);
  known.here.present = true;
  known.leave(Time(1));
  EXPECT_TRUE(known.gone);
  known.forget_world();
  known.say_waits(Time(2), {}, {});  // it said so before it joined
  EXPECT_TRUE(known.gone);
}

TEST(ProcessRecord, AnEndIsDeadForMembersOfThisWorldOrAnEarlierOne) {
  for (const Place place : {Place::joining, Place::joined, Place::member}) {
    ProcessRecord process = at(place);
    process.note_end({1, kEpoch, 5}, kEpoch);
    EXPECT_EQ(process.life, Life::dead);
    process.note_end({1, kEpoch + 1, 5}, kEpoch);
    EXPECT_EQ(process.life, Life::ended) << "the process had gone on";
  }
  ProcessRecord outside = at(Place::outside);
  outside.note_end({1, kEpoch, 5}, kEpoch);
  EXPECT_EQ(outside.life, Life::ended);
}

TEST(ProcessRecord, AnEndTakesAProcessOutOfThoseThatWaitOrAreCut) {
  ProcessRecord process = at(Place::waiting);
  process.cut = Time(1);
  process.note_end({1, 0, 0}, kEpoch);
  EXPECT_EQ(process.place, Place::outside);
  EXPECT_FALSE(process.cut);
}

TEST(ProcessRecord, OfTwoReportsTheOneOfTheLaterWorldCounts) {
  ProcessRecord process = at(Place::member);
  process.note_end({1, 2, 9}, kEpoch);
  process.note_end({1, 3, 4}, kEpoch);
  process.note_end({1, 3, 2}, kEpoch);
  EXPECT_EQ(process.end, (ProcessEnd{1, 3, 4}));
}

TEST(ProcessRecord, ARumourIsForgottenWithTheWorldAndGivesWayToAnEnd) {
  ProcessRecord process = at(Place::member);
  process.hear_rumour({1, 3, 9}, Time(1));
  process.hear_rumour({1, 3, 10}, Time(2));
  EXPECT_EQ(process.life, Life::rumoured);
  EXPECT_FALSE(process.has_ended());
  EXPECT_EQ(process.rumoured, Time(1)) << "the first one counts";
  ProcessRecord next = process;
  next.forget_world();
  EXPECT_EQ(next.life, Life::lives);
  process.note_end({1, 2, 0}, kEpoch);
  EXPECT_EQ(process.end, (ProcessEnd{1, 2, 0})) << "the rumour does not matter";
  process.hear_rumour({1, 9, 9}, Time(3));
  EXPECT_EQ(process.life, Life::dead) << "an end is no rumour again";
}

TEST(ProcessRecord, ANewWorldForgetsWhatBelongsToTheOld) {
  ProcessRecord process = at(Place::member, Life::dead);
  process.here.present = true;
  process.here.doubts = {4};
  process.give_promise({});
  process.was_missed = true;
  process.forget_world();
  EXPECT_EQ(process.life, Life::ended) << "the next world will look at it";
  EXPECT_FALSE(process.here.present);
  EXPECT_TRUE(process.here.doubts.empty());
  EXPECT_EQ(process.here.answer, Answer::none);
  EXPECT_TRUE(process.was_missed) << "this is about the previous world";
}

TEST(ProcessRecord, SilenceThatCountsForNothingLeavesWhatWasNeverHeardEmpty) {
  ProcessRecord process;
  process.met = Time(1);
  process.cut = Time(1);
  process.forget_silence(Time(9));
  EXPECT_EQ(process.met, Time(9));
  EXPECT_EQ(process.here.heard, Time(9));
  EXPECT_EQ(process.cut, Time(1)) << "a cut link was reported, and is no silence";
  EXPECT_FALSE(process.spoke);
}

TEST(ProcessRecord, ABallotIsPromisedAndThenAccepted) {
  ProcessRecord process;
  MembershipMessage said;
  said.step = 5;
  process.give_promise(said);
  EXPECT_EQ(process.here.answer, Answer::promised);
  EXPECT_EQ(process.here.promise.step, 5U);
  process.forget_answer();
  EXPECT_EQ(process.here.answer, Answer::none);
  process.accept();
  EXPECT_EQ(process.here.answer, Answer::accepted);
}

TEST(ProcessRecord, AFounderNeverIsANewcomer) {
  ProcessRecord founder;
  founder.be_at_start();
  founder.become_known();
  EXPECT_TRUE(founder.at_start());
  ProcessRecord other;
  other.become_known();
  EXPECT_EQ(other.origin, ProcessRecord::Origin::newcomer);
}

}  // namespace
}  // namespace gradwire::membership
