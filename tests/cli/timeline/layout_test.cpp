// Tests slices on tracks.
#include "watch/timeline/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/cli/timeline/made_up_job.hpp"

namespace gradwire::watch::timeline {
namespace {

using test::JobFacts;
using test::MadeUpJob;

std::vector<Slice> random_slices(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::int64_t> at(0, 200);
  std::uniform_int_distribution<std::int64_t> took(0, 40);
  std::vector<Slice> slices(60);
  for (Slice& slice : slices) {
    slice.begin = at(random);
    slice.end = slice.begin + took(random);
  }
  return slices;
}

TEST(Layout, SlicesLieInEachOtherOrBesideEachOtherOnTwentySeeds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool nests : {false, true}) {
      const auto rows = spread(random_slices(seed), nests);
      std::size_t count = 0;
      for (const std::vector<Slice>& row : rows) {
        count += row.size();
        for (std::size_t i = 0; i < row.size(); ++i) {
          for (std::size_t j = i + 1; j < row.size(); ++j) {
            const bool beside = row[j].begin >= row[i].end;
            const bool inside = row[j].begin >= row[i].begin && row[j].end <= row[i].end;
            EXPECT_TRUE(beside || (nests && inside)) << "seed " << seed << ": [" << row[i].begin << ", " << row[i].end
                                                     << "] and [" << row[j].begin << ", " << row[j].end << "]";
          }
        }
      }
      EXPECT_EQ(count, 60U);
      EXPECT_GT(rows.size(), 1U);
    }
  }
}

TEST(Layout, TakesNoMoreTracksThanItMust) {
  EXPECT_EQ(spread({{.begin = 0, .end = 10}, {.begin = 10, .end = 20}, {.begin = 20, .end = 20}}, false).size(), 1U);
  EXPECT_EQ(spread({{.begin = 0, .end = 10}, {.begin = 5, .end = 15}, {.begin = 10, .end = 20}}, false).size(), 2U);
  EXPECT_EQ(spread({{.begin = 0, .end = 10}, {.begin = 2, .end = 8}, {.begin = 2, .end = 3}}, true).size(), 1U);
  EXPECT_EQ(spread({{.begin = 0, .end = 10}, {.begin = 2, .end = 8}}, false).size(), 2U);
}

TEST(Layout, CountersGoBackToNothingAndCountEveryByte) {
  const JobFacts facts;
  const Recording recording = MadeUpJob(facts).recording();
  const Timeline timeline = lay_out(recording, match(recording));
  ASSERT_EQ(timeline.counters.size(), 8U);
  for (const Counter& counter : timeline.counters) {
    EXPECT_EQ(counter.values.back().value, 0) << counter.name;
    std::int64_t before = -1;
    double bytes = 0;
    for (const Counter::Value& value : counter.values) {
      EXPECT_GT(value.time, before);
      EXPECT_GE(value.value, 0);
      before = value.time;
      bytes += value.value * 1e6 * 1e-3;  // MB/s during a millisecond
    }
    if (!counter.is_bytes) {
      EXPECT_NEAR(
          bytes,
          static_cast<double>(facts.steps * facts.buckets * facts.lanes * 2 * 3) * static_cast<double>(facts.bytes), 1);
    }
  }
}

TEST(Layout, ABucketThatNeverEndedIsShown) {
  Recording recording = MadeUpJob(JobFacts(2)).recording();
  std::erase_if(recording.ranks[1].activities,
                [](const Activity& a) { return a.kind == EventKind::bucket_end && a.step == 2 && a.bucket == 1; });
  const Timeline timeline = lay_out(recording, match(recording));
  std::vector<std::string> unfinished;
  for (const Track& track : timeline.tracks) {
    for (const Slice& slice : track.slices) {
      if (slice.name.ends_with("unfinished")) {
        unfinished.push_back(std::to_string(track.rank) + " " + slice.name);
      }
    }
  }
  EXPECT_THAT(unfinished, ::testing::ElementsAre("1 bucket 1, unfinished"));
}

}  // namespace
}  // namespace gradwire::watch::timeline
