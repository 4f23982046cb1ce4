// Tests critical paths of jobs whose slow part is known.
#include "watch/timeline/critical_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/timeline/made_up_job.hpp"
#include "watch/timeline/summary.hpp"

namespace gradwire::watch::timeline {
namespace {

using test::JobFacts;
using test::MadeUpJob;
using test::random_facts;

struct Found {
  Recording recording;
  std::vector<StreamPaths> paths;
  [[nodiscard]] std::vector<PathShare> shares(bool by_bucket = false) const {
    std::vector<const StepPath*> steps;
    for (const StepPath& step : paths.at(0).steps) {
      steps.push_back(&step);
    }
    return shares_of(steps, by_bucket);
  }
  [[nodiscard]] double share(int rank, Work work) const {
    double sum = 0;
    for (const PathShare& each : shares()) {
      sum += recording.ranks[each.rank].rank == rank && each.work == work ? each.share : 0;
    }
    return sum;
  }
};

Found find(Recording recording) {
  const Matching matching = match(recording);
  align(recording, matching);
  auto paths = critical_paths(recording, matching);
  return {std::move(recording), std::move(paths)};
}

Found find(const JobFacts& facts) { return find(MadeUpJob(facts).recording()); }

TEST(CriticalPath, HasNoGapAndIsAsLongAsTheStepOnTwentySeeds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    JobFacts facts = random_facts(seed);
    facts.ahead.assign(facts.ahead.size(), 0);
    const Found found = find(facts);
    ASSERT_EQ(found.paths.size(), 1U);
    // The first step has no path, since it is unknown when its computing began.
    ASSERT_EQ(found.paths[0].steps.size(), static_cast<std::size_t>(facts.steps - 1));
    for (const StepPath& step : found.paths[0].steps) {
      ASSERT_FALSE(step.path.empty());
      std::int64_t time = step.path.front().end;
      std::uint32_t rank = step.last_rank;
      for (const Segment& segment : step.path) {
        EXPECT_EQ(segment.end, time);
        EXPECT_LT(segment.begin, segment.end);
        EXPECT_TRUE(segment.rank == rank || segment.work == Work::travel);
        EXPECT_NE(segment.work, Work::wait) << "everything was recorded";
        time = segment.begin;
        rank = segment.rank;
      }
      if (facts.steps > 1) {
        EXPECT_EQ(step.path.back().work, Work::compute);
      }
    }
    EXPECT_LT(found.share(0, Work::other), 0.2);
  }
}

TEST(CriticalPath, RunsThroughTheRankThatComputesLonger) {
  JobFacts facts;
  facts.compute[2] = 3'000'000;
  const Found found = find(facts);
  const PathShare first = found.shares()[0];
  EXPECT_EQ(found.recording.ranks[first.rank].rank, 2);
  EXPECT_EQ(first.work, Work::compute);
  EXPECT_GT(first.share, 0.8);
  EXPECT_EQ(found.share(0, Work::compute) + found.share(1, Work::compute) + found.share(3, Work::compute), 0);
}

TEST(CriticalPath, RunsOverTheSlowLink) {
  JobFacts facts;
  facts.link[1] = 0.05;
  const Found found = find(facts);
  const PathShare first = found.shares()[0];
  EXPECT_EQ(found.recording.ranks[first.rank].rank, 1);
  EXPECT_EQ(first.work, Work::travel);
  EXPECT_GT(found.share(1, Work::travel), 0.7);
}

TEST(CriticalPath, RunsThroughTheSlowEncoder) {
  JobFacts facts;
  facts.encode[3] = 500'000;
  const Found found = find(facts);
  const PathShare first = found.shares()[0];
  EXPECT_EQ(found.recording.ranks[first.rank].rank, 3);
  EXPECT_EQ(first.work, Work::encode);
  EXPECT_GT(first.share, 0.8);
}

// A message that arrives while its receiver encodes is seen late. This is not the link's fault.
TEST(CriticalPath, BlamesNoLinkForAReceiverThatIsBusy) {
  JobFacts facts(2);
  facts.encode[0] = 400'000;
  facts.buckets = 1;
  facts.compute = {10'000, 10'000};
  const Found found = find(facts);
  EXPECT_GT(found.share(0, Work::encode), 0.7);
  EXPECT_LT(found.share(1, Work::travel), 0.05);
}

TEST(CriticalPath, SurvivesClocksThatDiffer) {
  JobFacts facts;
  facts.compute[2] = 3'000'000;
  facts.ahead = {0, -4'000'000'000, 77'000'000'000, 5};
  const Found found = find(facts);
  EXPECT_GT(found.share(2, Work::compute), 0.75);
}

TEST(CriticalPath, WaitsForARankWithoutAFile) {
  JobFacts facts;
  facts.compute[2] = 3'000'000;
  Recording recording = MadeUpJob(facts).recording();
  recording.ranks.erase(recording.ranks.begin() + 2);
  const Found found = find(std::move(recording));
  ASSERT_EQ(found.paths[0].steps.size(), 2U);
  double waits = 0;
  for (const int rank : {0, 1, 3}) {
    waits += found.share(rank, Work::wait);
  }
  EXPECT_GT(waits, 0.6);
}

// In a step of small native sums, the others wait for the rank that comes last. The file has lost events: the path ends
// at the rank whose step has no recorded begin.
TEST(CriticalPath, EndsAtARankThatRecordedNoStep) {
  Recording recording = MadeUpJob(JobFacts{}).recording();
  for (std::size_t rank = 1; rank < recording.ranks.size(); ++rank) {
    std::erase_if(recording.ranks[rank].activities, [](const Activity& each) {
      return each.kind == EventKind::step_begin || each.kind == EventKind::step_end;
    });
  }
  const Found found = find(std::move(recording));
  ASSERT_FALSE(found.paths.at(0).steps.empty());
  for (const StepPath& step : found.paths[0].steps) {
    for (const Segment& segment : step.path) {
      EXPECT_GT(segment.begin, 0) << "the segment begins before the job";
      EXPECT_LT(segment.begin, segment.end);
    }
  }
}

TEST(CriticalPath, OfANativeSumRunsThroughTheLastToCome) {
  Recording recording;
  recording.clocks = {{"host", 0}};
  recording.streams.push_back({.part = "library", .world_size = 3});
  for (int rank = 0; rank < 3; ++rank) {
    RankLog log;
    log.rank = rank;
    for (std::uint32_t step = 0; step < 2; ++step) {
      const std::int64_t from = 1'000'000 * (1 + step);
      const std::int64_t entered = from + (rank == 1 ? 800'000 : 100'000);
      const std::int64_t end = from + 820'000;
      const auto add = [&](EventKind kind, std::int64_t begin, std::int64_t until, std::uint32_t bucket) {
        log.activities.push_back(
            {.begin = begin, .end = until, .step = step, .bucket = bucket, .stream = 0, .kind = kind});
      };
      add(EventKind::step_begin, entered - 1'000, entered - 1'000, observe::kNoBucket);
      for (const std::uint32_t bucket : {0U, 1U}) {
        add(EventKind::bucket_begin, entered, entered, bucket);
        add(EventKind::all_reduce, entered, end, bucket);
        add(EventKind::bucket_end, entered, end, bucket);
      }
      add(EventKind::step_end, entered - 500, end + 5'000, observe::kNoBucket);
    }
    sort_activities(log.activities);
    recording.ranks.push_back(std::move(log));
  }
  const Found found = find(std::move(recording));
  ASSERT_EQ(found.paths[0].steps.size(), 1U);
  const std::vector<PathShare> second = shares_of({found.paths[0].steps.data()}, true);
  EXPECT_EQ(found.recording.ranks[second[0].rank].rank, 1);
  EXPECT_EQ(second[0].work, Work::compute);
  EXPECT_GT(second[0].share, 0.9);
}

TEST(CriticalPath, OfCallsIsSinceTheCallBefore) {
  JobFacts facts;
  facts.buckets = 1;
  facts.compute[1] = 3'000'000;
  Recording recording = MadeUpJob(facts).recording();
  recording.streams[0].kind = observe::Source::Kind::communicator;
  for (RankLog& log : recording.ranks) {
    std::erase_if(log.activities, [](const Activity& a) { return a.kind <= EventKind::step_end; });
  }
  const Found found = find(std::move(recording));
  EXPECT_TRUE(found.paths[0].calls);
  ASSERT_EQ(found.paths[0].steps.size(), 2U);
  EXPECT_GT(shares_of({&found.paths[0].steps[1]}, true)[0].share, 0.8);
  EXPECT_EQ(shares_of({&found.paths[0].steps[1]}, true)[0].work, Work::compute);
}

TEST(CriticalPath, AStepWhoseBeginIsNotKnownHasNoTime) {
  JobFacts facts;
  Recording recording = MadeUpJob(facts).recording();
  const Found whole = find(recording);
  ASSERT_EQ(whole.paths[0].steps.size(), 2U);
  EXPECT_THAT(whole.paths[0].truncated_steps, ::testing::ElementsAre(0));
  // This is the recording that a trace of step 2 alone gives.
  Recording alone = recording;
  alone.first_step = 2;
  for (RankLog& log : alone.ranks) {
    std::erase_if(log.activities, [](const Activity& a) { return a.step < 2; });
  }
  const Found without = find(std::move(alone));
  EXPECT_TRUE(without.paths.at(0).steps.empty());
  EXPECT_THAT(without.paths[0].truncated_steps, ::testing::ElementsAre(2));
  // Now it also has the end of the previous step.
  recording.first_step = 2;
  for (RankLog& log : recording.ranks) {
    std::erase_if(log.activities, [](const Activity& a) {
      return a.step < 1 || (a.step == 1 && a.kind != EventKind::step_end && a.kind != EventKind::bucket_end);
    });
  }
  const Found found = find(std::move(recording));
  ASSERT_EQ(found.paths.at(0).steps.size(), 1U);
  EXPECT_EQ(found.paths[0].steps[0].nanoseconds, whole.paths[0].steps[1].nanoseconds);
  EXPECT_EQ(found.paths[0].ranks[0].steps, 1);
  EXPECT_TRUE(found.paths[0].truncated_steps.empty());
}

TEST(CriticalPath, TypicalStepsAreTheMedianAndTheWorst) {
  StreamPaths paths;
  for (const std::int64_t took : {30, 10, 20, 90}) {
    paths.steps.push_back({.step = static_cast<std::uint32_t>(took), .nanoseconds = took, .path = {}});
  }
  EXPECT_EQ(typical_steps(paths).median->step, 20U);
  EXPECT_EQ(typical_steps(paths).worst->step, 90U);
}

}  // namespace
}  // namespace gradwire::watch::timeline
