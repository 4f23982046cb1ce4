// Tests the matching of sends and receives in made-up recordings.
#include "watch/timeline/messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/timeline/made_up_job.hpp"

namespace gradwire::watch::timeline {
namespace {

using test::JobFacts;
using test::MadeUpJob;
using test::random_facts;

const Activity& at(const Recording& recording, Place place) {
  return recording.ranks[place.rank].activities[place.index];
}

void expect_pairs(const Recording& recording, const Matching& matching) {
  for (const Message& message : matching.messages) {
    const Activity& send = at(recording, message.send);
    const Activity& receive = at(recording, message.receive);
    EXPECT_EQ(send.kind, EventKind::send);
    EXPECT_EQ(receive.kind, EventKind::receive);
    EXPECT_EQ(std::tuple(send.step, send.bucket, send.lane, send.hop, send.stream),
              std::tuple(receive.step, receive.bucket, receive.lane, receive.hop, receive.stream));
    EXPECT_EQ(send.peer, recording.ranks[message.receive.rank].rank);
    EXPECT_EQ(receive.peer, recording.ranks[message.send.rank].rank);
  }
}

TEST(Messages, AllOfAJobAreMatchedAndItsClocksAlignedOnTwentySeeds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const JobFacts facts = random_facts(seed);
    Recording recording = MadeUpJob(facts).recording();
    const Matching matching = match(recording);
    EXPECT_EQ(matching.messages.size(), static_cast<std::size_t>(facts.steps * facts.buckets * facts.lanes * 2 *
                                                                 facts.ranks * (facts.ranks - 1)));
    EXPECT_EQ(matching.lonely, 0U);
    expect_pairs(recording, matching);
    const Recording before = recording;
    const Alignment alignment = align(recording, matching);
    for (std::size_t r = 0; r < recording.ranks.size(); ++r) {
      const ClockFit& fit = alignment.fits[static_cast<std::size_t>(recording.ranks[r].clock)];
      const std::int64_t wrong =
          recording.ranks[r].activities[0].begin - (before.ranks[r].activities[0].begin - facts.ahead[r]);
      EXPECT_LE(std::abs(wrong), fit.error + 1) << "rank " << r;
      EXPECT_TRUE(fit.known);
    }
    for (const Message& message : matching.messages) {
      const auto error = [&](Place place) {
        return alignment.fits[static_cast<std::size_t>(recording.ranks[place.rank].clock)].error;
      };
      EXPECT_GE(at(recording, message.receive).end,
                at(recording, message.send).begin - error(message.send) - error(message.receive) - 2);
    }
  }
}

Activity message(EventKind kind, std::uint16_t peer, std::int64_t begin, std::uint32_t step = 0) {
  return {.begin = begin,
          .end = begin + 10,
          .bytes = 1,
          .step = step,
          .bucket = 0,
          .stream = 0,
          .kind = kind,
          .peer = peer};
}

Recording two_ranks(std::vector<Activity> a, std::vector<Activity> b) {
  Recording recording;
  recording.clocks = {{"host", 0}};
  recording.streams.push_back({.part = "library", .world_size = 2});
  recording.ranks.resize(2);
  recording.ranks[1].rank = 1;
  recording.ranks[0].file = "a";
  recording.ranks[1].file = "b";
  recording.ranks[0].activities = std::move(a);
  recording.ranks[1].activities = std::move(b);
  return recording;
}

TEST(Messages, EqualOnesAreMatchedInOrder) {
  const Recording recording = two_ranks({message(EventKind::send, 1, 100), message(EventKind::send, 1, 200)},
                                        {message(EventKind::receive, 0, 120), message(EventKind::receive, 0, 230)});
  const Matching matching = match(recording);
  ASSERT_EQ(matching.messages.size(), 2U);
  for (const Message& each : matching.messages) {
    EXPECT_EQ(each.send.index, each.receive.index);
  }
}

TEST(Messages, WhatLacksAnEndIsLeftAlone) {
  // One of two receives of step 0 is lost, and the recording does not say which.
  const Recording recording = two_ranks(
      {message(EventKind::send, 1, 100), message(EventKind::send, 1, 200), message(EventKind::send, 1, 300, 1)},
      {message(EventKind::receive, 0, 120), message(EventKind::receive, 0, 320, 1),
       message(EventKind::receive, 0, 420, 2)});
  const Matching matching = match(recording);
  ASSERT_EQ(matching.messages.size(), 1U);
  EXPECT_EQ(at(recording, matching.messages[0].send).step, 1U);
  EXPECT_EQ(matching.lonely, 4U);
}

TEST(Messages, OfSomeOfTheRanksAreForeign) {
  Recording recording = two_ranks({message(EventKind::send, 1, 100)}, {message(EventKind::receive, 0, 120)});
  recording.streams[0].whole = false;
  const Matching matching = match(recording);
  EXPECT_TRUE(matching.messages.empty());
  EXPECT_EQ(matching.foreign, 2U);
}

TEST(Messages, AClockThatIsSaidToBeSharedAndIsNotIsSplit) {
  Recording recording =
      two_ranks({message(EventKind::send, 1, 1'000'000), message(EventKind::receive, 1, 9'000'000, 1)},
                {message(EventKind::receive, 0, 500'000), message(EventKind::send, 0, 7'000'000, 1)});
  const Alignment alignment = align(recording, match(recording));
  ASSERT_EQ(alignment.fits.size(), 2U);
  EXPECT_NE(recording.ranks[0].clock, recording.ranks[1].clock);
  EXPECT_GE(recording.ranks[1].activities[0].end, recording.ranks[0].activities[0].begin);
}

}  // namespace
}  // namespace gradwire::watch::timeline
