// Tests files of events, as jobs leave them and with damage.
#include "watch/timeline/recording.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>

#include "gradwire/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"
#include "watch/event_blocks.hpp"

namespace gradwire::watch::timeline {
namespace {

using observe::Event;
using test::error_of;
using test::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using watch::EventFileHead;
using watch::EventFileScale;
using watch::EventFileSource;

constexpr std::int64_t kSecond = 1'000'000'000;

struct FileFacts {
  std::string part = "library";
  int rank = 0;
  int world = 2;
  std::int64_t began = 1000 * kSecond;  // date
  std::uint64_t dropped = 0;
  double nanoseconds_per_tick = 2;
  std::string monotonic = "boot";
  std::uint64_t up = 500;  // clock of that boot, at the beginning
  std::string host = "host";
  std::uint64_t took = 4'000;
  std::vector<EventFileSource> sources = {};  // empty means one session
  std::vector<Event> events = {Event{.begin = 100, .source = 1, .duration = 10, .step = 1}};
  bool ended = true;
};

class Files : public ::testing::Test {
 protected:
  std::string write(const FileFacts& facts) {
    std::string text;
    const auto append = [&](std::uint32_t kind, const void* data, std::size_t bytes) {
      const watch::BlockHead head{.kind = kind, .bytes = bytes, .place = text.size()};
      text.append(reinterpret_cast<const char*>(&head), sizeof head);
      text.append(static_cast<const char*>(data), bytes);
    };
    EventFileHead head{.rank = facts.rank};
    facts.monotonic.copy(head.monotonic, sizeof head.monotonic - 1);
    facts.host.copy(head.host, sizeof head.host - 1);
    append(watch::kFile, &head, sizeof head);
    for (int i = 0; i < 2; ++i) {  // 2 ns per tick, then 4
      const EventFileScale scale{.ticks = 1'000 * static_cast<std::uint64_t>(i),
                                 .monotonic = facts.up + facts.took * static_cast<std::uint64_t>(i),
                                 .realtime = facts.began + i * kSecond,
                                 .nanoseconds_per_tick = facts.nanoseconds_per_tick,
                                 .recorded = 1,
                                 .dropped = facts.dropped};
      append(watch::kScale, &scale, sizeof scale);
    }
    std::vector<EventFileSource> sources = facts.sources;
    if (sources.empty()) {
      sources.push_back({.id = 1, .rank = facts.rank, .world_size = facts.world});
    }
    for (const EventFileSource& source : sources) {
      append(watch::kSource, &source, sizeof source);
    }
    append(watch::kEvents, facts.events.data(), facts.events.size() * sizeof(Event));
    if (facts.ended) {
      append(watch::kEnd, nullptr, 0);
    }
    const std::string name = "gradwire-" + facts.part + "-rank-" + std::to_string(facts.rank) + ".events";
    std::ofstream(folder_.file(name), std::ios::binary) << text;
    return text;
  }
  [[nodiscard]] Recording read(StepRange steps = {}) const { return read_recording(folder_.path(), steps); }

  ScratchFolder folder_;
};

TEST_F(Files, OfAllRanksAreOneRecording) {
  write({.rank = 1});
  write({.rank = 0});
  const Recording got = read();
  EXPECT_THAT(got.warnings, IsEmpty());
  ASSERT_EQ(got.ranks.size(), 2U);
  EXPECT_EQ(got.ranks[0].rank, 0);
  EXPECT_EQ(got.ranks[1].rank, 1);
  EXPECT_EQ(got.clocks.size(), 1U) << "one host";
  ASSERT_EQ(got.streams.size(), 1U);
  EXPECT_TRUE(got.streams[0].whole);
  ASSERT_EQ(got.ranks[0].activities.size(), 1U);
  // Between two times at which both clocks were read, times lie on the line through them: 4 ns per tick.
  EXPECT_EQ(got.ranks[0].activities[0].begin, 900);
  EXPECT_EQ(got.ranks[0].activities[0].end, 900 + 160 * 4);
}

TEST_F(Files, HostsHaveClocksOfTheirOwn) {
  write({.rank = 0});
  write({.rank = 1, .monotonic = "another boot"});
  const Recording got = read();
  ASSERT_EQ(got.clocks.size(), 2U);
  EXPECT_EQ(got.ranks[1].clock, 1);
  EXPECT_EQ(got.clocks[1].since_1970, 1000 * kSecond - 500);
}

TEST_F(Files, OnlyTheStepsThatAreAskedFor) {
  write({.rank = 0,
         .world = 1,
         .events = {Event{.source = 1, .step = 1, .kind = EventKind::send},
                    Event{.source = 1, .step = 2, .kind = EventKind::send},
                    Event{.source = 1, .kind = EventKind::pull}}});
  EXPECT_EQ(read({2, 2}).ranks[0].activities.size(), 2U);
}

TEST_F(Files, MissingRanksAreNamed) {
  write({.rank = 1, .world = 5});
  write({.rank = 3, .world = 5});
  EXPECT_THAT(read().warnings,
              ElementsAre(HasSubstr("gradwire-library-rank-N.events is missing of rank 0, 2, 4 of a job of 5 ranks")));
}

TEST_F(Files, OfAnotherJobAreLeftOut) {
  write({.rank = 0, .up = 100 * kSecond});
  write({.rank = 1, .up = 100 * kSecond});
  write({.rank = 2, .world = 3, .began = 900 * kSecond, .up = 500});
  write({.rank = 3, .world = 4, .up = 100 * kSecond});
  const Recording got = read();
  EXPECT_EQ(got.ranks.size(), 2U);
  EXPECT_THAT(got.warnings,
              ::testing::UnorderedElementsAre(
                  HasSubstr("gradwire-library-rank-2.events: is of another job, which ended 99 s before"),
                  ::testing::AllOf(HasSubstr("gradwire-library-rank-3.events: is of another job, of 4 ranks where"))));
}

// Mutation tried: only the date counts.
TEST_F(Files, AHostWhoseDateIsWrongIsInTheJob) {
  constexpr std::int64_t kDay = 24 * 3600 * kSecond;
  for (const std::int64_t wrong : {-kDay, kDay}) {
    write({.rank = 0, .world = 3, .began = 2 * kDay});
    write({.rank = 1, .world = 3, .began = 2 * kDay});
    write({.rank = 2, .world = 3, .began = 2 * kDay + wrong, .monotonic = "another boot", .host = "other"});
    const Recording got = read();
    EXPECT_EQ(got.ranks.size(), 3U);
    const std::string told = wrong < 0 ? "rank-2.events: by the date of its host it ended 86399 s before" : "";
    EXPECT_EQ(got.warnings.size(), told.empty() ? 0U : 1U);
    EXPECT_THAT(got.warnings, ::testing::Each(HasSubstr(told)));
  }
}

// A larger job left files in a folder to which a smaller job on another host was traced.
TEST_F(Files, WhatALargerJobLeftDoesNotCountAsTheJob) {
  write({.rank = 0, .began = 2000 * kSecond});
  write({.rank = 1, .began = 2000 * kSecond});
  for (int rank = 2; rank < 8; ++rank) {
    write({.rank = rank, .world = 8, .monotonic = "another boot", .host = "other"});
  }
  EXPECT_EQ(read().ranks.size(), 2U);
}

// A clock was set while a job ran, so the host's other clock counts.
TEST_F(Files, OfOneHostTheDateDoesNotMatter) {
  write({.rank = 0, .began = 5000 * kSecond});
  write({.rank = 1, .began = 1000 * kSecond});
  EXPECT_EQ(read().ranks.size(), 2U);
  EXPECT_THAT(read().warnings, IsEmpty());
}

TEST_F(Files, WhatAnEarlierJobLeftOnAnotherHostIsLeftOut) {
  write({.rank = 0, .world = 3});
  write({.rank = 1, .world = 3, .began = 900 * kSecond, .monotonic = "boot before"});  // from the same host
  write({.rank = 2,
         .world = 3,
         .began = 900 * kSecond,
         .monotonic = "another",
         .up = 7,
         .host = "other",
         .took = 100 * kSecond});
  const Recording got = read();
  EXPECT_EQ(got.ranks.size(), 1U);
  EXPECT_THAT(got.warnings, ::testing::Contains(HasSubstr("rank-1.events: is of another job")));
  EXPECT_THAT(got.warnings, ::testing::Contains(HasSubstr("rank-2.events: is of another job")));
}

TEST_F(Files, KilledAndLossyRanksAreNamed) {
  const std::string text = write({.rank = 0, .dropped = 12});
  write({.rank = 1, .ended = false});
  const Recording got = read();
  EXPECT_THAT(got.warnings, ElementsAre(HasSubstr("rank-0.events: 12 events were lost"),
                                        HasSubstr("rank-1.events: has no end: the process was killed")));
  EXPECT_FALSE(got.ranks[1].ended);
  EXPECT_EQ(got.ranks[0].dropped, 12U);
}

TEST_F(Files, AFileThatIsCutOffAnywhereIsReadOrNamed) {
  const std::string text = write({.rank = 0});
  write({.rank = 1});
  for (std::size_t bytes = 0; bytes < text.size(); bytes += 7) {
    std::ofstream(folder_.file("gradwire-library-rank-0.events"), std::ios::binary | std::ios::trunc)
        << text.substr(0, bytes);
    const Recording got = read();
    ASSERT_FALSE(got.warnings.empty()) << bytes;
    EXPECT_THAT(got.warnings[0], HasSubstr("gradwire-library-rank-0.events")) << bytes;
  }
}

TEST_F(Files, OfAnotherLayoutAreNamed) {
  write({.rank = 1});
  std::string text = write({.rank = 0});
  text[sizeof(watch::BlockHead)] = 1;
  std::ofstream(folder_.file("gradwire-library-rank-0.events"), std::ios::binary | std::ios::trunc) << text;
  EXPECT_THAT(read().warnings[0],
              ::testing::AllOf(HasSubstr("rank-0.events: events of version 1"), HasSubstr("left out")));
}

TEST_F(Files, AFolderWithoutEventsIsRefused) {
  EXPECT_THAT(error_of([&] { static_cast<void>(read()); }).what(), HasSubstr("start the job with GRADWIRE_TRACE="));
  EXPECT_THAT(error_of([&] { static_cast<void>(read_recording(folder_.path() / "none")); }).what(),
              HasSubstr("none cannot be read"));
  std::ofstream(folder_.file("gradwire-mpi-rank-0.events")) << "no events";
  EXPECT_THAT(error_of([&] { static_cast<void>(read()); }).what(),
              ::testing::AllOf(HasSubstr("has no events"), HasSubstr("gradwire-mpi-rank-0.events: no ")));
}

TEST_F(Files, RanksThatShareAProcessAreToldApart) {
  write({.rank = 0,
         .sources = {{.id = 1, .rank = 0, .world_size = 2, .shares_process = 1},
                     {.id = 2, .rank = 1, .world_size = 2, .shares_process = 1},
                     {.id = 3, .rank = 1, .world_size = 2, .shares_process = 1},
                     {.id = 4, .rank = 0, .world_size = 2, .shares_process = 1}},
         .events = {Event{.begin = 1, .source = 1}, Event{.begin = 2, .source = 2}, Event{.begin = 3, .source = 3},
                    Event{.begin = 4, .source = 4}}});
  const Recording got = read();
  EXPECT_THAT(got.warnings, IsEmpty());
  ASSERT_EQ(got.ranks.size(), 2U);
  EXPECT_EQ(got.streams.size(), 2U) << "each rank's second session is the same one";
  EXPECT_EQ(got.ranks[1].activities[1].stream, got.ranks[0].activities[1].stream);
}

TEST_F(Files, CommunicatorsOfSomeRanksAreKeptApart) {
  const auto sources = [](int rank) {
    return std::vector<EventFileSource>{{.id = 1, .rank = rank, .world_size = 4, .kind = 1},
                                        {.id = 2, .rank = rank / 2, .world_size = 2, .kind = 1}};
  };
  for (int rank = 0; rank < 4; ++rank) {
    write({.rank = rank, .world = 4, .sources = sources(rank), .events = {Event{.source = 1}, Event{.source = 2}}});
  }
  const Recording got = read();
  ASSERT_EQ(got.streams.size(), 2U);
  EXPECT_TRUE(got.streams[0].whole);
  EXPECT_FALSE(got.streams[1].whole);
  EXPECT_EQ(got.ranks[3].activities.size(), 2U) << "the process has its own rank, not that of the smaller communicator";
}

TEST_F(Files, ADamagedNumberOfRanksIsRefusedAndNamed) {
  write({.rank = 0});
  write({.rank = 1, .world = 2'000'000'000});
  write({.rank = 2, .sources = {{.id = 1, .rank = -5, .world_size = 2}}});
  const Recording got = read();
  EXPECT_EQ(got.ranks.size(), 1U);
  EXPECT_THAT(got.warnings,
              ::testing::UnorderedElementsAre(
                  ::testing::AllOf(HasSubstr("rank-1.events: rank 1 of 2000000000, where a job has at most 1048576"),
                                   HasSubstr("left out")),
                  HasSubstr("rank-2.events: rank -5 of 2"), HasSubstr("is missing of rank 1 of a job of 2 ranks")));
}

TEST_F(Files, OfManyMissingRanksFourAreNamed) {
  write({.rank = 3, .world = 1 << 20});
  EXPECT_THAT(read().warnings, ElementsAre(HasSubstr("is missing of rank 0, 1, 2, 4 and 1048571 more of a job of")));
}

TEST_F(Files, DamagedTimesStayWithinWhatCanBeCounted) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  for (const double each : {1e300, -1e300, std::nan("")}) {
    write({.rank = 0,
           .began = std::numeric_limits<std::int64_t>::min(),
           .nanoseconds_per_tick = each,
           .events = {Event{.begin = ~std::uint64_t{0} / 2, .source = 1, .duration = ~0U, .step = 1}}});
    const Recording got = read();
    EXPECT_LT(std::abs(got.ranks.at(0).activities.at(0).begin), kMost) << each;
    EXPECT_LT(std::abs(got.clocks.at(0).since_1970), kMost);
  }
}

TEST_F(Files, ManyStreamsTakeNoLonger) {
  constexpr std::uint32_t kMany = 40'000;
  std::vector<EventFileSource> sources;
  for (std::uint32_t i = 1; i <= kMany; ++i) {
    sources.push_back({.id = i, .rank = 0, .world_size = 1});
  }
  write({.rank = 0, .sources = sources});
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(read().streams.size(), kMany);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
}

}  // namespace
}  // namespace gradwire::watch::timeline
