// Decodes files for Perfetto again, of made-up jobs and of one that ran.
#include "watch/timeline/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/timeline/decoded_trace.hpp"
#include "tests/cli/timeline/made_up_job.hpp"
#include "tests/cli/timeline/traced_job.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::watch::timeline {
namespace {

using test::decode;
using test::DecodedSlice;
using test::DecodedTrace;
using test::expect_flows;
using test::JobFacts;
using test::MadeUpJob;
using test::random_facts;
using ::testing::Contains;
using ::testing::HasSubstr;

struct Written {
  Recording recording;
  Matching matching;
  Alignment alignment;
  DecodedTrace trace;
  [[nodiscard]] std::uint64_t error() const {
    std::int64_t most = 0;
    for (const ClockFit& fit : alignment.fits) {
      most = std::max(most, fit.error);
    }
    return static_cast<std::uint64_t>(2 * most + 2);
  }
};

Written write(Recording recording) {
  Written all;
  all.recording = std::move(recording);
  all.matching = match(all.recording);
  all.alignment = align(all.recording, all.matching);
  std::ostringstream out;
  write_trace(all.recording, all.alignment, lay_out(all.recording, all.matching), out);
  all.trace = decode(out.str());
  return all;
}

std::size_t count(const DecodedTrace& trace, const std::string& track) {
  return static_cast<std::size_t>(
      std::count_if(trace.slices.begin(), trace.slices.end(),
                    [&](const DecodedSlice& slice) { return slice.track.starts_with(track); }));
}

std::size_t count(const Recording& recording, EventKind kind) {
  std::size_t sum = 0;
  for (const RankLog& log : recording.ranks) {
    sum += static_cast<std::size_t>(
        std::count_if(log.activities.begin(), log.activities.end(), [&](const Activity& a) { return a.kind == kind; }));
  }
  return sum;
}

// Return the total time of the slices on tracks with that name, and of a recording's activities of that kind.
std::uint64_t time_of(const DecodedTrace& trace, const std::string& track) {
  std::uint64_t sum = 0;
  for (const DecodedSlice& slice : trace.slices) {
    sum += slice.track == track ? slice.end - slice.begin : 0;
  }
  return sum;
}
std::uint64_t time_of(const Recording& recording, EventKind kind) {
  std::int64_t sum = 0;
  for (const RankLog& log : recording.ranks) {
    for (const Activity& a : log.activities) {
      sum += a.kind == kind ? a.end - a.begin : 0;
    }
  }
  return static_cast<std::uint64_t>(sum);
}

void expect_all_is_there(const Written& written) {
  EXPECT_EQ(time_of(written.trace, "buckets"), time_of(written.recording, EventKind::bucket_end));
  EXPECT_EQ(time_of(written.trace, "sends"), time_of(written.recording, EventKind::send));
  EXPECT_EQ(written.trace.flows.size(), written.matching.messages.size());
  expect_flows(written.trace, written.error());
  EXPECT_EQ(count(written.trace, "sends"), count(written.recording, EventKind::send));
  EXPECT_EQ(count(written.trace, "receives"), count(written.recording, EventKind::receive));
  EXPECT_EQ(count(written.trace, "buckets"), count(written.recording, EventKind::bucket_end));
  EXPECT_EQ(count(written.trace, "steps"), 2 * count(written.recording, EventKind::step_end));
  std::size_t works = 0;
  for (const EventKind kind :
       {EventKind::encode, EventKind::reduce, EventKind::decode, EventKind::native, EventKind::wait}) {
    works += count(written.recording, kind);
  }
  EXPECT_EQ(count(written.trace, "work"), works);
}

TEST(TraceFile, OfMadeUpJobsHoldsWhatItMustOnThirtySeeds) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Written written = write(MadeUpJob(random_facts(seed)).recording());
    expect_all_is_there(written);
    EXPECT_GT(written.matching.messages.size(), 0U);
  }
}

TEST(TraceFile, OverlappingOperationsOfOneLaneTakeFurtherTracks) {
  Recording recording = MadeUpJob(JobFacts(2)).recording();
  auto& activities = recording.ranks[0].activities;
  const auto first =
      std::find_if(activities.begin(), activities.end(), [](const Activity& a) { return a.kind == EventKind::encode; });
  Activity beside = *first;  // the same lane in another executor of this session
  beside.begin += (first->end - first->begin) / 2;
  beside.end += 1'000;
  activities.push_back(beside);
  sort_activities(activities);
  const Written written = write(std::move(recording));
  expect_all_is_there(written);
  EXPECT_EQ(
      std::count_if(written.trace.tracks.begin(), written.trace.tracks.end(),
                    [](const auto& track) { return track.second.name() == "work" && track.second.parent_uuid() == 1; }),
      2);
}

TEST(TraceFile, TellsTheErrorOfEachClock) {
  JobFacts facts(3);
  facts.ahead = {0, 8'000'000'000, 0};
  const Written written = write(MadeUpJob(facts).recording());
  const auto labels = [&](std::uint64_t process) {
    const auto& all = written.trace.tracks.at(process).process().process_labels();
    return std::vector<std::string>(all.begin(), all.end());
  };
  EXPECT_EQ(written.trace.tracks.at(2).process().process_name(), "rank 1");
  EXPECT_THAT(labels(1), Contains("clock: reference"));
  EXPECT_THAT(labels(2), Contains(HasSubstr("clock within ")));
  EXPECT_THAT(labels(3), Contains("clock: reference"));
}

TEST(TraceFile, OfAnUnfinishedJobIsOneToo) {
  Recording recording = MadeUpJob(JobFacts(3)).recording();
  recording.ranks[1].ended = false;
  recording.ranks[1].dropped = 7;
  auto& activities = recording.ranks[1].activities;
  activities.resize(activities.size() / 2);
  recording.ranks.pop_back();
  const Written written = write(std::move(recording));
  EXPECT_EQ(written.trace.flows.size(), written.matching.messages.size());
  EXPECT_GT(written.matching.lonely, 0U);
  expect_flows(written.trace, written.error());
  const auto& labels = written.trace.tracks.at(2).process().process_labels();
  EXPECT_THAT(std::vector<std::string>(labels.begin(), labels.end()),
              ::testing::IsSupersetOf({"cut off", "7 events lost"}));
}

TEST(TraceFile, OfAJobThatRanHoldsWhatItMust) {
  const test::ScratchFolder folder;
  test::trace_a_job(folder.path());
  const Written written = write(read_recording(folder.path()));
  EXPECT_THAT(written.recording.warnings, ::testing::IsEmpty());
  ASSERT_EQ(written.recording.ranks.size(), 4U);
  EXPECT_EQ(written.matching.lonely, 0U);
  EXPECT_GE(written.matching.messages.size(), 5U * 2 * 4 * 3);
  expect_flows(written.trace, written.error());
  EXPECT_EQ(written.trace.flows.size(), written.matching.messages.size());
  EXPECT_EQ(count(written.trace, "sends, session "), count(written.recording, EventKind::send));
  EXPECT_EQ(count(written.trace, "steps, session "), 2U * 2 * 5 * 4);
  EXPECT_GE(count(written.trace, "native sums, session "), 5U * 4);
  EXPECT_EQ(written.trace.counters.size(), 8U);
}

}  // namespace
}  // namespace gradwire::watch::timeline
