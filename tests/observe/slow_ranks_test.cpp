// Tests that slow ranks are named with their cause, and healthy ones are not.
#include "observe/slow_ranks.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simulated_ranks.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::observe::test {
namespace {

constexpr unsigned kSeeds = 20 / gradwire::test::kStepShare;

int steps_of(int world) { return world > 16 ? 4 : 30; }

// Returns the number of intervals until the slow rank is named.
std::size_t intervals_of(SlowCause cause) {
  const SlowWatchOptions options;
  const bool doubtful =
      cause == SlowCause::cores_shared || cause == SlowCause::slow_link_in || cause == SlowCause::slow_link_out;
  return doubtful ? options.doubtful_needed : options.needed;
}

std::string describe(const std::vector<Diagnosis>& found) {
  std::string text;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i >= 8 && found[i].cause == SlowCause::none) {
      continue;
    }
    text += " " + std::to_string(i) + ": " + std::to_string(found[i].wait_seconds * 1e3) + " ms " +
            std::to_string(found[i].share) + " " + std::string(to_string(found[i].cause));
  }
  return text;
}

// Slows a rank down so much that the others notice it in a world of any size.
void plant(SimulatedRank& rank, SlowCause cause, double world, double link_seconds = 20e-3) {
  const double moved = 56 * 1024 * 2 * (world > 16 ? 2 : 8) * (world - 1);  // bytes per step in one direction
  const double rate = moved / link_seconds;
  switch (cause) {
    case SlowCause::late_compute: rank.compute += 20e-3; break;
    case SlowCause::slow_link_out: rank.out = rate; break;
    case SlowCause::slow_link_in: rank.in = rate; break;
    case SlowCause::slow_encoding: rank.encode += 20e-3 / (world > 16 ? 2 : 8); break;
    case SlowCause::cores_shared: rank.delayed += 20e-3; break;
    case SlowCause::paused: rank.pause = 2; break;
    default: break;
  }
}

// All links are fast enough that a healthy job does not wait for them.
std::vector<SimulatedRank> healthy(int world) {
  std::vector<SimulatedRank> ranks(static_cast<std::size_t>(world));
  for (SimulatedRank& rank : ranks) {
    rank.out = rank.in = 56 * 1024 * 2.0 * (world > 16 ? 2 : 8) * (world - 1) / 2e-3;
  }
  return ranks;
}

class SlowRanks : public ::testing::TestWithParam<int> {};

TEST_P(SlowRanks, AHealthyJobNamesNobody) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SimulatedJob job(healthy(GetParam()), seed);
    SlowWatch watch;
    for (int interval = 0; interval < 6; ++interval) {
      const std::vector<Diagnosis> found = diagnose(job.run(steps_of(GetParam())));
      EXPECT_TRUE(watch.update(found).empty()) << "seed " << seed << describe(found);
    }
  }
}

// `lost`: seconds per step that every rank is without a core.
void expect_named(int world, SlowCause cause, unsigned seed, double lost) {
  std::vector<SimulatedRank> ranks = healthy(world);
  const std::size_t slow = seed % ranks.size();
  // With two ranks, a slow link shows only because one rank waits longer than the other.
  plant(ranks[slow], cause, world, world == 2 && lost > 0 ? 40e-3 : 20e-3);
  for (SimulatedRank& rank : ranks) {
    rank.lost = lost;
  }
  SimulatedJob job(ranks, seed);
  SlowWatch watch;
  std::vector<SlowChange> changes;
  std::vector<Diagnosis> found;
  for (std::size_t interval = 0; interval < intervals_of(cause); ++interval) {
    found = diagnose(job.run(steps_of(world)));
    for (const SlowChange& change : watch.update(found)) {
      changes.push_back(change);
    }
  }
  // With two ranks, the link into one is the link out of the other.
  const bool mirrored = world == 2 && cause == SlowCause::slow_link_in;
  ASSERT_EQ(changes.size(), 1U) << to_string(cause) << " seed " << seed << describe(found);
  EXPECT_EQ(changes[0].rank, static_cast<int>(mirrored ? 1 - slow : slow)) << to_string(cause) << describe(found);
  EXPECT_EQ(changes[0].cause, mirrored ? SlowCause::slow_link_out : cause) << "seed " << seed << describe(found);
  EXPECT_TRUE(changes[0].slow);
}

TEST_P(SlowRanks, EveryPlantedCauseIsNamed) {
  for (int cause = 1; cause < kSlowCauses; ++cause) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      expect_named(GetParam(), static_cast<SlowCause>(cause), seed, 0);
    }
  }
}

// Other programs take turns on all cores, as if something is built beside the job.
class SlowRanksOfABusyMachine : public ::testing::TestWithParam<int> {};

TEST_P(SlowRanksOfABusyMachine, AHealthyJobNamesNobody) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    for (const double lost : {1e-3, 4e-3, 10e-3}) {
      std::vector<SimulatedRank> ranks = healthy(GetParam());
      for (SimulatedRank& rank : ranks) {
        rank.lost = lost;
      }
      SimulatedJob job(ranks, seed);
      SlowWatch watch;
      for (int interval = 0; interval < 20; ++interval) {
        const std::vector<Diagnosis> found = diagnose(job.run(steps_of(GetParam())));
        EXPECT_TRUE(watch.update(found).empty()) << "seed " << seed << ", lost " << lost << describe(found);
      }
    }
  }
}

TEST_P(SlowRanksOfABusyMachine, EveryPlantedCauseIsNamed) {
  for (int cause = 1; cause < kSlowCauses; ++cause) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      expect_named(GetParam(), static_cast<SlowCause>(cause), seed, 1e-3);
    }
  }
}

// If half of the ranks or more are slow, none is out of line.
class TwoSlowRanks : public ::testing::TestWithParam<int> {};

TEST_P(TwoSlowRanks, AreBothNamed) {
  const std::pair<SlowCause, SlowCause> pairs[] = {{SlowCause::late_compute, SlowCause::late_compute},
                                                   {SlowCause::late_compute, SlowCause::slow_encoding},
                                                   {SlowCause::slow_link_out, SlowCause::slow_link_out}};
  for (const auto& [first, second] : pairs) {
    if (first == SlowCause::slow_link_out && GetParam() != 8) {
      continue;  // each slows down the other's link, and half of four ranks are not out of line
    }
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      std::vector<SimulatedRank> ranks = healthy(GetParam());
      const std::size_t one = seed % ranks.size();
      const std::size_t two = (one + 1 + seed % (ranks.size() - 1)) % ranks.size();
      plant(ranks[one], first, GetParam());
      plant(ranks[two], second, GetParam());
      SimulatedJob job(ranks, seed);
      SlowWatch watch;
      std::vector<Diagnosis> found;
      for (std::size_t interval = 0; interval <= intervals_of(first); ++interval) {
        found = diagnose(job.run(steps_of(GetParam())));
        watch.update(found);
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(watch.cause(static_cast<int>(i)), i == one   ? first
                                                    : i == two ? second
                                                               : SlowCause::none)
            << "rank " << i << " seed " << seed << describe(found);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, SlowRanks, ::testing::Values(2, 4, 8, 64));
INSTANTIATE_TEST_SUITE_P(Worlds, SlowRanksOfABusyMachine, ::testing::Values(2, 4, 8));
INSTANTIATE_TEST_SUITE_P(Worlds, TwoSlowRanks, ::testing::Values(4, 8, 64));

TEST(SlowRanksAlone, OneRankIsNeverSlow) {
  RankSeen seen{.steps = 10, .step_seconds = 1, .wait_seconds = 0.9, .longest_gap = 5};
  EXPECT_EQ(diagnose({&seen, 1}).at(0).cause, SlowCause::none);
  EXPECT_TRUE(diagnose({}).empty());
}

// The transport's own sums have no frames; only the time that each rank spent inside is known.
TEST(SlowRanksWithoutFrames, WhoWaitsLeastIsLate) {
  std::vector<RankSeen> ranks(4, {.steps = 10, .step_seconds = 60e-3, .wait_seconds = 25e-3, .compute_seconds = 35e-3});
  EXPECT_EQ(diagnose(ranks)[2].cause, SlowCause::none);
  ranks[2].wait_seconds = 5e-3;
  ranks[2].compute_seconds = 55e-3;
  const std::vector<Diagnosis> found = diagnose(ranks);
  EXPECT_EQ(found[2].cause, SlowCause::late_compute);
  EXPECT_NEAR(found[2].wait_seconds, 20e-3, 1e-9);
  EXPECT_EQ(found[1].cause, SlowCause::none);
}

// The other ranks wait 12 ms of a 40 ms step for rank 2.
class SlowRanksLink : public ::testing::Test {
 protected:
  SlowRanksLink() {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i].peers[0] = i == 2 ? PeerWait{} : PeerWait{.rank = 2, .direct = 12e-3};
    }
  }
  [[nodiscard]] SlowCause cause() const { return diagnose(ranks)[2].cause; }

  std::vector<RankSeen> ranks = std::vector<RankSeen>(4, {.steps = 10,
                                                          .step_seconds = 40e-3,
                                                          .wait_seconds = 20e-3,
                                                          .compute_seconds = 20e-3,
                                                          .bytes_in = 1e6,
                                                          .idle_seconds = 15e-3});
};

TEST_F(SlowRanksLink, ItsOwnRankWaitsToo) {
  EXPECT_EQ(cause(), SlowCause::slow_link_out);
  ranks[2].idle_seconds = 3e-3;  // it was working on something
  EXPECT_EQ(cause(), SlowCause::none);
}

TEST_F(SlowRanksLink, OthersWithoutACoreDoNotLookForItsFrames) {
  for (const std::size_t other : {0U, 1U, 3U}) {
    ranks[other].delayed_seconds = 9e-3;
  }
  EXPECT_EQ(cause(), SlowCause::none);
}

// Rank 2 is 4.5 ms without a core, and encodes 2 ms longer: each is less than half of the wait.
TEST_F(SlowRanksLink, IsWhatOwnDelaysDoNotExplainTogether) {
  ranks[2].delayed_seconds = 4.5e-3;
  EXPECT_EQ(cause(), SlowCause::slow_link_out);
  ranks[2].codec_seconds_per_byte = 5.5e-9;
  EXPECT_EQ(cause(), SlowCause::none);
}

// Frames and results of other lanes were missing at the same time.
TEST_F(SlowRanksLink, NobodyWaitsLongerForARankThanForAll) {
  for (RankSeen& rank : ranks) {
    rank.peers[0].indirect = rank.peers[0].direct;
  }
  EXPECT_NEAR(diagnose(ranks)[2].wait_seconds, 15e-3, 1e-9);
}

// Most of the longer computing time of the rank was a wait for a core.
TEST(SlowRanksCores, ComputingWithoutACoreIsNotLateCompute) {
  std::vector<RankSeen> ranks(2, {.steps = 10, .step_seconds = 60e-3, .wait_seconds = 25e-3, .compute_seconds = 35e-3});
  ranks[1].wait_seconds = 5e-3;
  ranks[1].compute_seconds = 55e-3;
  EXPECT_EQ(diagnose(ranks)[1].cause, SlowCause::late_compute);
  ranks[1].delayed_seconds = 9e-3;
  EXPECT_EQ(diagnose(ranks)[1].cause, SlowCause::late_compute);
  ranks[1].delayed_seconds = 11e-3;
  EXPECT_EQ(diagnose(ranks)[1].cause, SlowCause::cores_shared);
}

TEST(SlowRanksShare, TheThresholdIsThatOfTheCaller) {
  std::vector<RankSeen> ranks(2,
                              {.steps = 10, .step_seconds = 100e-3, .wait_seconds = 25e-3, .compute_seconds = 75e-3});
  ranks[1].wait_seconds = 10e-3;
  ranks[1].compute_seconds = 90e-3;
  EXPECT_EQ(diagnose(ranks, 0.14)[1].cause, SlowCause::late_compute);
  EXPECT_EQ(diagnose(ranks, 0.16)[1].cause, SlowCause::none);
}

Diagnosis sign(double share, SlowCause cause = SlowCause::late_compute) {
  return {.wait_seconds = share / 10, .share = share, .cause = share > kSlowShare ? cause : SlowCause::none};
}

std::vector<SlowChange> feed(SlowWatch& watch, double share, SlowCause cause = SlowCause::late_compute) {
  const std::vector<Diagnosis> ranks{sign(0), sign(share, cause)};
  return watch.update(ranks);
}

TEST(SlowWatchTest, TurnsSlowAfterTwoOfThreeAndWellAfterThreeCalmOnes) {
  SlowWatch watch;
  EXPECT_TRUE(feed(watch, 0.3).empty());
  EXPECT_TRUE(feed(watch, 0).empty());
  const auto slow = feed(watch, 0.3);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].rank, 1);
  EXPECT_TRUE(slow[0].slow);
  EXPECT_EQ(watch.cause(1), SlowCause::late_compute);
  EXPECT_EQ(watch.cause(0), SlowCause::none);
  EXPECT_TRUE(feed(watch, 0).empty());
  EXPECT_TRUE(feed(watch, 0).empty());
  const auto well = feed(watch, 0);
  ASSERT_EQ(well.size(), 1U);
  EXPECT_FALSE(well[0].slow);
  EXPECT_EQ(well[0].cause, SlowCause::late_compute);
  EXPECT_EQ(watch.cause(1), SlowCause::none);
}

TEST(SlowWatchTest, LinksAndCoresNeedFiveOfSix) {
  for (const SlowCause cause : {SlowCause::slow_link_out, SlowCause::slow_link_in, SlowCause::cores_shared}) {
    SlowWatch watch;
    for (int i = 0; i < 30; ++i) {
      EXPECT_TRUE(feed(watch, i % 3 == 0 ? 0 : 0.5, cause).empty()) << i;  // four of six
    }
    std::size_t named = 0;
    for (int i = 0; i < 5; ++i) {
      named += feed(watch, 0.5, cause).size();
    }
    EXPECT_EQ(named, 1U);
    EXPECT_EQ(watch.cause(1), cause);
  }
}

TEST(SlowWatchTest, OneOfThreeIsNoise) {
  SlowWatch watch;
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(feed(watch, i % 3 == 0 ? 0.5 : 0).empty()) << i;
  }
}

TEST(SlowWatchTest, AtTheEdgeItChangesOnce) {
  SlowWatch watch;
  std::size_t changes = 0;
  for (int i = 0; i < 100; ++i) {
    changes += feed(watch, i % 2 == 0 ? 0.101 : 0.099).size();
  }
  EXPECT_EQ(changes, 1U);
  for (int i = 0; i < 100; ++i) {
    changes += feed(watch, 0.08).size();  // below one threshold and above the other
  }
  EXPECT_EQ(changes, 1U);
  for (int i = 0; i < 3; ++i) {
    changes += feed(watch, 0.06).size();
  }
  EXPECT_EQ(changes, 2U);
}

TEST(SlowWatchTest, APauseCountsAtOnceAndEnds) {
  SlowWatch watch;
  const auto slow = feed(watch, 0.9, SlowCause::paused);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].cause, SlowCause::paused);
  EXPECT_TRUE(feed(watch, 0).empty());
  EXPECT_TRUE(feed(watch, 0).empty());
  EXPECT_EQ(feed(watch, 0).size(), 1U);
}

TEST(SlowWatchTest, ALineSaysWhoAndWhy) {
  const SlowChange change{
      2,
      true,
      {.wait_seconds = 20e-3, .share = 0.33, .cause = SlowCause::late_compute, .own = 52e-3, .others = 32e-3},
      SlowCause::late_compute};
  EXPECT_EQ(to_text(change, 61e-3),
            "rank 2 is slow; other ranks wait 20 ms of a step of 61 ms (33%) for it; late compute: it computes 52 ms "
            "of a step, others 32 ms");
  EXPECT_EQ(to_text({2, false, {.wait_seconds = 1e-3, .share = 0.02}, SlowCause::paused}, 50e-3),
            "rank 2 is well again (it was slow: paused); other ranks wait 1 ms of a step of 50 ms (2%) for it");
}

TEST(SlowRanksText, FiguresOfARank) {
  RankSeen seen{.steps = 10, .step_seconds = 61e-3, .wait_seconds = 41e-3, .compute_seconds = 20e-3, .bytes_in = 1e6};
  seen.idle_seconds = 30e-3;
  seen.codec_seconds_per_byte = 1e-9;
  seen.peers[0] = {.rank = 3, .direct = 12e-3, .entry = 11e-3, .indirect = 2e-3};
  EXPECT_EQ(to_text(seen, {.wait_seconds = 5e-3, .cause = SlowCause::paused}),
            "step 61 ms, computes 20 ms, in finish() 41 ms, idle 30 ms, codec 1 ms, without a core 0 ms, on one 0 ms, "
            "longest gap 0 ms; "
            "waits for rank 3: entry 11 ms, frames 12 ms, results 2 ms; waited for 5 ms, paused");
}

Diagnosis waited_for(double share, SlowCause cause = SlowCause::late_compute) {
  return {.share = share, .cause = cause};
}

// Mutations tried: intervals that are not consecutive count; a rank counts although it is not slow, or late because of
// others; the first of two ranks goes.
TEST(ExpelWatch, WhoSlowsAllDownForLongEnoughIsNamed) {
  EXPECT_DOUBLE_EQ(slowdown(waited_for(0.75)), 4);
  EXPECT_GT(slowdown(waited_for(1)), 1e5);
  SlowWatch slow;
  ExpelWatch watch(3);
  const auto after = [&](double first, double second) {
    const std::vector<Diagnosis> found{waited_for(first), waited_for(0, SlowCause::none), waited_for(second)};
    static_cast<void>(slow.update(found));
    return watch.update(found, slow);
  };
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(after(0.6, 0), -1) << "2.5 times as long is too short";
  }
  for (std::size_t i = 1; i < ExpelWatch::kIntervals; ++i) {
    ASSERT_EQ(after(0.7, 0.8), -1);
  }
  ASSERT_EQ(after(0.6, 0), -1) << "a calm interval ends the row";
  for (std::size_t i = 1; i < ExpelWatch::kIntervals; ++i) {
    ASSERT_EQ(after(0.7, 0.8), -1);
  }
  EXPECT_EQ(after(0.7, 0.8), 2) << "the slower of the two goes";
  for (int i = 0; i < 20; ++i) {
    const std::vector<Diagnosis> found{waited_for(0.8, SlowCause::none), waited_for(0), waited_for(0)};
    static_cast<void>(slow.update(found));
    ASSERT_NE(slow.cause(0), SlowCause::none);
    ASSERT_EQ(watch.update(found, slow), -1) << "other ranks made it late";
  }
  SlowWatch doubts;
  ExpelWatch of_links(3);
  const std::vector<Diagnosis> found{waited_for(0.8, SlowCause::slow_link_out), waited_for(0), waited_for(0)};
  const std::size_t named = SlowWatchOptions{}.doubtful_needed;
  for (std::size_t i = 1; i < named + ExpelWatch::kIntervals - 1; ++i) {
    static_cast<void>(doubts.update(found));
    ASSERT_EQ(of_links.update(found, doubts), -1) << "it is named slow after " << named << " intervals";
  }
  static_cast<void>(doubts.update(found));
  EXPECT_EQ(of_links.update(found, doubts), 0);
}

}  // namespace
}  // namespace gradwire::observe::test
