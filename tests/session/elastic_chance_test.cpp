// Tests jobs whose ranks end, fall silent or are cut off at random times: the survivors hold the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <ranges>
#include <set>
#include <string>
#include <vector>

#include "elastic_job.hpp"
#include "elastic_kinds.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

// Ranks die at random times, also while others are busy with the previous death. Mutations tried, each fails here:
// commit() always returns true; a member does not notice that its epoch is over.
TEST(Elastic, SurvivorsOfManyDeathsHoldTheSame) {
  const int seeds = environment_int("GRADWIRE_SEEDS", std::max(8, 40 / kStepShare));
  for_each_at_once(std::views::iota(1, seeds + 1), [](int seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    constexpr int kMany = 5;
    const Kind& kind = kPolicies[random() % std::size(kPolicies)];
    Plan plan = kind.plan();
    const int deaths = 1 + static_cast<int>(random() % (kMany - 1));
    while (static_cast<int>(plan.dies_after.size()) < deaths) {
      plan.dies_after[random() % kMany] = 1 + static_cast<std::int64_t>(random() % 250);
    }
    const std::vector<Fate> fates = run(plan, kMany);
    const std::vector<Id> survivors = survivors_of(fates);
    ASSERT_GE(survivors.size(), static_cast<std::size_t>(kMany - deaths));
    for (const Id id : survivors) {
      expect_equal(fates[survivors[0]], fates[id], false);
    }
  });
}

// The faults drawn from a seed: a partition into two sides, ranks that are silent for a while, a death, a save after
// each step; any of these may come together.
struct Troubles {
  Plan plan;
  std::set<Id> side;  // the smaller side of a partition
  bool only_cut = false;

  explicit Troubles(int seed, int ranks) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto moment = [&] { return 1 + static_cast<std::int64_t>(random() % 250); };
    const Kind& kind = kPolicies[random() % std::size(kPolicies)];
    plan = kind.plan();
    plan.policy += "[elastic]\nsuspect = \"2s\"\n";
    plan.timeout = std::chrono::seconds(3);
    plan.errors = {ErrorCode::expelled, ErrorCode::timeout};
    plan.keeps_states = random() % 2 == 0;
    std::vector<Id> ids(static_cast<std::size_t>(ranks));
    std::iota(ids.begin(), ids.end(), 0U);
    std::shuffle(ids.begin(), ids.end(), random);
    const auto take = [&] {
      const Id id = ids.back();
      ids.pop_back();
      return id;
    };
    const bool cuts = random() % 2 == 0;
    if (cuts) {
      side = {ids[0]};
      if (random() % 2 == 0) {
        side.insert(ids[1]);
      }
      plan.cut = std::make_shared<Cut>(side);
      plan.cuts_after[take()] = moment();
    }
    const std::size_t silent = cuts ? random() % 2 : 1 + random() % 2;
    for (std::size_t i = 0; i < silent; ++i) {
      plan.silent_after[take()] = {moment(), milliseconds(200 + random() % 4000)};
    }
    const bool dies = random() % 3 == 0;
    if (dies) {
      plan.dies_after[take()] = moment();
    }
    only_cut = cuts && silent == 0 && !dies;
  }
};

TEST(Elastic, SurvivorsOfCutsAndSilencesHoldTheSame) {
  constexpr int kMany = 5;
  const int seeds = environment_int("GRADWIRE_SEEDS", 4);
  const int first = environment_int("GRADWIRE_FIRST_SEED", 1);
  for_each_at_once(std::views::iota(first, first + seeds), [](int seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Troubles troubles(seed, kMany);
    const std::vector<Fate> fates = run(troubles.plan, kMany);
    // Each side is compared by itself: a process that is cut off may have delivered the last step, while the others
    // make it again because they did not hear about it.
    std::map<bool, Id> first_of;
    for (const Id id : survivors_of(fates)) {
      const bool cut_off = troubles.side.contains(id);
      expect_equal(fates[first_of.try_emplace(cut_off, id).first->second], fates[id], false);
      EXPECT_TRUE(!troubles.only_cut || !cut_off || fates[id].world_size == kMany)
          << "process " << id << " went on without the larger side";
    }
    for (Id id = 0; troubles.only_cut && id < kMany; ++id) {
      EXPECT_TRUE(troubles.side.contains(id) || !fates[id].parameters.empty()) << "the larger side goes on: " << id;
    }
  });
}

constexpr std::int64_t kRestartMoments = std::max(3, 12 / kStepShare);

// Ranks die at any time between the start of a job that goes on from a checkpoint and its end.
TEST(Elastic, RanksMayDieWhileAJobIsStartedAgain) {
  const std::string policy = kPolicies[2].policy;
  for (const Id victim : {0U, 2U}) {
    std::int64_t operations = 0;
    for (std::int64_t at = 0; at <= operations; at += std::max<std::int64_t>(1, operations / kRestartMoments)) {
      SCOPED_TRACE(std::to_string(victim) + " dies at operation " + std::to_string(at));
      const ScratchFolder folder;
      run({.policy = policy, .steps = 3, .checkpoints = folder.path()});
      const Plan again{.policy = policy, .steps = 5, .checkpoints = folder.path()};
      Plan dies = again;
      if (at > 0) {
        dies.dies_after = {{victim, at}};
      }
      const std::vector<Fate> fates = run(dies);
      operations = at == 0 ? fates[victim].operations : operations;
      const std::vector<Id> survivors = survivors_of(fates);
      ASSERT_GE(survivors.size(), 3U);
      for (const Id id : survivors) {
        EXPECT_EQ(fates[id].restored, 3U);
        expect_equal(fates[survivors[0]], fates[id], false);
      }
      const auto restored = run(again)[0].restored;
      if (fates[survivors[0]].world_size < kRanks) {
        EXPECT_EQ(restored, 5U) << "the survivors' last checkpoint is complete";
      } else {
        EXPECT_GE(restored, 4U) << "the victim may have ended before it wrote its part of the last one";
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::test
