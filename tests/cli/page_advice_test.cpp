// Tests a page's advice: each sentence appears if the numbers support it, and only then.
#include <gmock/gmock.h>

#include "cli/page_support.hpp"

namespace gradwire::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> advice_on(const PlannedJob& plan) { return summary_of(planned_job(plan)).advice; }

// Communication takes a fifth of a step, and is not unusual.
PlannedRank healthy() { return {.step = 0.05, .compute = 0.04, .wait = 0.004}; }

TEST(PageAdvice, AHealthyJobGetsNone) {
  for (const int ranks : {2, 3, 4, 64}) {
    EXPECT_THAT(advice_on({.ranks = ranks, .rank = [](int) { return healthy(); }}), IsEmpty()) << ranks;
  }
}

TEST(PageAdvice, WithoutAllHistoriesNothingIsCompared) {
  const PlannedJob plan{.rank = [](int rank) {
    return rank == 1 ? PlannedRank{.step = 0.05, .compute = 0.04, .cause = "late_compute"}
                     : PlannedRank{.step = 0.05, .compute = 0.005, .wait = 0.04};
  }};
  EXPECT_THAT(advice_on(plan), Contains(HasSubstr("for rank 1")));
  for (const int missing : {0, 1, 3}) {
    std::vector<page::RankHistory> histories;
    for (int rank = 0; rank < plan.ranks; ++rank) {
      if (rank != missing) {
        histories.push_back(planned_history(plan, rank));
      }
    }
    const page::Summary summary = summary_of(page::newest_job(std::move(histories), {}, "/tmp/report"));
    EXPECT_THAT(summary.advice, ElementsAre("3 of 4 ranks left a history, so ranks are not compared, and nothing is "
                                            "said of the link."));
    for (const page::RankSummary& rank : summary.ranks) {
      EXPECT_FALSE(rank.is_slow());
    }
  }
}

TEST(PageAdvice, TheLinkOfASlowRankIsComparedWithTheOthers) {
  const auto sentences = advice_on({.rank = [](int rank) {
    return rank == 2 ? PlannedRank{.step = 0.1, .compute = 0.05, .wait = 0.02, .sending_rate = 30e6}
                     : PlannedRank{.step = 0.1, .compute = 0.019, .wait = 0.07, .sending_rate = 118.75e6};
  }});
  ASSERT_FALSE(sentences.empty());
  EXPECT_THAT(sentences[0], HasSubstr("for rank 2")) << "it computes longer, too, which comes first";
  const auto link = advice_on({.rank = [](int rank) {
    return PlannedRank{.step = 0.1,
                       .compute = rank == 2 ? 0.0501 : 0.0499,
                       .wait = 0.02,
                       .sending_rate = rank == 2 ? 30e6 : 118.75e6,
                       .cause = rank == 2 ? "slow_link_out" : ""};
  }});
  EXPECT_THAT(link, Contains("Ranks waited for rank 2 during 50% of the job, whose link gives 240 Mbit/s where others "
                             "give 950 Mbit/s."));
}

TEST(PageAdvice, WhoComputesLongerIsFoundWithoutBeingTold) {
  const auto sentences = advice_on({.rank = [](int rank) {
    return rank == 1 ? PlannedRank{.step = 0.05, .compute = 0.045, .wait = 0.001}
                     : PlannedRank{.step = 0.05, .compute = 0.025, .wait = 0.02};
  }});
  ASSERT_EQ(sentences.size(), 1U);
  EXPECT_EQ(
      sentences[0],
      "Ranks wait 40% of a step for rank 1, which computes longer: it computes 45.0 ms of a step, others 25.0 ms. "
      "Give it less to compute, or look at its input and its processor.");
}

TEST(PageAdvice, OfTwoRanksTheLateOneIsNamed) {
  const auto sentences = advice_on(
      {.ranks = 2, .rank = [](int rank) { return PlannedRank{.step = 0.05, .compute = rank == 1 ? 0.045 : 0.025}; }});
  ASSERT_FALSE(sentences.empty());
  EXPECT_THAT(sentences[0], HasSubstr("for rank 1, which computes longer"));
}

TEST(PageAdvice, CausesThatRanksAgreedOnAreTakenOver) {
  const std::vector<std::pair<std::string, std::string>> causes{
      {"late_compute", "which computes longer"},          {"slow_link_in", "look at the link into node0"},
      {"slow_encoding", "which encodes slowly: 2.00 ms"}, {"cores_shared", "Bind ranks to cores of their own"},
      {"paused", "which stood still for a time"},         {"of_the_future", "the numbers do not say why"}};
  for (const auto& [cause, text] : causes) {
    const auto sentences = advice_on({.rank = [&, &cause = cause](int rank) {
      PlannedRank plan = healthy();
      plan.cause = rank == 3 ? cause : "";
      plan.last_arrivals = 0.25;
      return plan;
    }});
    ASSERT_EQ(sentences.size(), 1U) << cause;
    EXPECT_THAT(sentences[0], HasSubstr("rank 3"));
    EXPECT_THAT(sentences[0], HasSubstr(text));
  }
}

// The ranks' own comparison found no slow rank, so differences between them are no reason to name one.
TEST(PageAdvice, WhereRanksAgreedThatNobodyIsSlowNobodyIs) {
  const auto sentences = advice_on({.rank = [](int rank) {
    return PlannedRank{.step = 0.05, .compute = rank == 1 ? 0.045 : 0.025, .last_arrivals = 0.25};
  }});
  EXPECT_THAT(sentences, Not(Contains(HasSubstr("rank 1"))));
}

TEST(PageAdvice, HiddenCommunicationNeedsNoStrongerCodec) {
  EXPECT_THAT(advice_on({.rank = [](int) { return PlannedRank{.step = 0.05, .compute = 0.049, .wait = 0.0005}; }}),
              ElementsAre(HasSubstr("Communication is hidden behind computing: 2.0% of a step waits for it")));
}

TEST(PageAdvice, UncompressedBytesThatNothingHidesAskForACodec) {
  const auto plan = [](double ratio) {
    return PlannedJob{.ratio = ratio,
                      .rank = [](int) { return PlannedRank{.step = 0.05, .compute = 0.03, .wait = 0.006}; }};
  };
  EXPECT_THAT(advice_on(plan(1)),
              Contains(HasSubstr("takes 40% of a step, and gradients travel nearly uncompressed (ratio 1.00)")));
  EXPECT_THAT(advice_on(plan(4)), Not(Contains(HasSubstr("int8 sends a quarter"))));
}

TEST(PageAdvice, WhatHoldsTheJobIsSaid) {
  const auto waiting = [](int) { return PlannedRank{.step = 0.05, .compute = 0.03, .wait = 0.018}; };
  EXPECT_THAT(advice_on({.ranks = 16, .rank = waiting}), Contains(HasSubstr("the link holds this job")));
  const auto here = advice_on({.rank = waiting});
  EXPECT_THAT(here, Contains(HasSubstr("all ranks share a host")));
  EXPECT_THAT(here, Not(Contains(HasSubstr("the link holds this job"))));
  page::Job emulated = planned_job({.rank = waiting});
  emulated.ranks[0].transport = "throttled(inproc), emulated 1Gbit/s, latency 50us";
  const auto slow = summary_of(emulated).advice;
  EXPECT_THAT(slow, Contains(HasSubstr("the emulated link (1Gbit/s, latency 50us) holds this job. A stronger codec")));
  EXPECT_THAT(slow, Not(Contains(HasSubstr("all ranks share a host"))));
  page::Job under_run = planned_job({.rank = waiting});  // under gradwire run --link
  for (page::RankHistory& rank : under_run.ranks) {
    rank.environment.emplace("GRADWIRE_EMULATED_LINK", "1Gbit/s,5ms");
  }
  EXPECT_THAT(summary_of(under_run).advice,
              Contains(HasSubstr("the emulated link (1Gbit/s,5ms) holds this job. A stronger codec")));
  EXPECT_THAT(
      advice_on(
          {.rank =
               [](int) {
                 return PlannedRank{
                     .step = 0.05, .compute = 0.03, .encode = 0.006, .reduce = 0.006, .decode = 0.006, .wait = 0.001};
               }}),
      Contains(HasSubstr("the link is not what holds this job")));
}

TEST(PageAdvice, RanksThatFellSilentOrGaveUpComeFirst) {
  page::Job job = planned_job({.rank = [](int) { return healthy(); }});
  job.ranks[3].ended = false;
  for (double& time : job.ranks[3].time) {
    time /= 2;
  }
  job.ranks[1].columns["errors"].back() = 1;
  const auto sentences = summary_of(job).advice;
  ASSERT_GE(sentences.size(), 2U);
  EXPECT_THAT(sentences[0], HasSubstr("Rank 1 on node0 gave up with an error"));
  EXPECT_THAT(sentences[1], HasSubstr("Rank 3 on node0 fell silent 25.0 s before"));
}

TEST(PageAdvice, NonfiniteFramesAndLargeErrorsAreTold) {
  page::Job job = planned_job({.rank = [](int) { return healthy(); }});
  auto& frames = job.ranks[0].groups[0].columns["nonfinite_frames"];
  for (std::size_t i = 64; i < frames.size(); ++i) {
    frames[i] = 3;
  }
  job.ranks[0].gauges["gradwire_relative_error_ratio default, int2"].assign(128, 0.7);
  const auto sentences = summary_of(job).advice;
  EXPECT_THAT(sentences, Contains(HasSubstr("3 frames had NaN or Inf inside, the first by step 5")));
  EXPECT_THAT(sentences, Contains(HasSubstr("relative error of default, int2 is 0.70")));
}

TEST(PageAdvice, ReasonsOfADropInThatPassesMostOnAreTold) {
  page::Job job = planned_job({.rank = [](int) { return healthy(); }});
  job.ranks[0].replaced.push_back({"MPI_Allreduce", "", 10, 100, 25, 100, 1});
  job.ranks[0].replaced.push_back({"MPI_Allreduce", "the operation is no sum", 10, 900, 900, 900, 1});
  EXPECT_THAT(summary_of(job).advice, Not(Contains(HasSubstr("passed on uncompressed"))))
      << "the gradients travel by a session";
  for (page::RankHistory& rank : job.ranks) {
    rank.groups.clear();
  }
  EXPECT_THAT(
      summary_of(job).advice,
      Contains("90% of the bytes of this job's calls were passed on uncompressed; most of them in MPI_Allreduce: "
               "the operation is no sum."));
}

TEST(PageAdvice, FewStepsAndOneRankSayLittle) {
  EXPECT_THAT(advice_on({.steps = 8, .rank = [](int) { return healthy(); }}), Contains(HasSubstr("These are 8 steps")));
  EXPECT_THAT(advice_on({.ranks = 1}), ElementsAre(HasSubstr("one rank, which sends nothing")));
}

}  // namespace
}  // namespace gradwire::test
