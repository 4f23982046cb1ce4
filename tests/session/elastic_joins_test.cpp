// Tests processes that were not there at the start and become ranks of a running job, whatever ends meanwhile: all
// ranks then hold the same.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <ranges>
#include <string>
#include <vector>

#include "elastic_job.hpp"
#include "elastic_kinds.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kFirstJoiner = kRanks;  // index of the first joiner's fate
constexpr Id kFirstJoinerId = kRanks + 1;     // one process has joined before, and ended
constexpr milliseconds kTime{10};             // of a step, during which others come

Plan joining(const Kind& kind, std::vector<std::uint64_t> joins_at) {
  Plan plan = kind.plan();
  plan.steps = 60;
  plan.joins_at = std::move(joins_at);
  plan.step_takes = kTime;
  return plan;
}

void expect_alike(const std::vector<Fate>& fates, const std::vector<Id>& survivors) {
  for (const Id one : survivors) {
    expect_equal(fates[survivors[0]], fates[one], false);
    EXPECT_EQ(fates[one].world_size, fates[survivors[0]].world_size);
  }
}

// Runs in which the process came before the same step are equal, including the residuals of the ranks: nothing is left
// of the step under way, at whatever time the process came. Mutation tried: the step under way is not undone.
TEST(Joins, AProcessBecomesARankBetweenTwoSteps) {
  std::atomic<int> compared = 0;
  const std::vector<std::size_t> kinds =
      kStepShare == 1 ? std::vector<std::size_t>{1, 2, 4, 6, 8, 10, 11, 12} : std::vector<std::size_t>{4, 8, 12};
  for_each_at_once(kinds, [&](std::size_t index) {
    SCOPED_TRACE(kPolicies[index].policy);
    std::map<std::pair<std::uint64_t, bool>, std::vector<Fate>> before;
    for (int tries = 0; tries < (kStepShare == 1 ? 6 : 2); ++tries) {
      const std::vector<Fate> fates = run(joining(kPolicies[index], {5}));
      EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 2, 3, kFirstJoiner}));
      expect_alike(fates, survivors_of(fates));
      ASSERT_EQ(fates[0].changes.size(), 1U);
      EXPECT_EQ(fates[0].changes[0].joined, std::vector<int>{kRanks});
      EXPECT_EQ(fates[0].changes[0].joined_names, std::vector<std::string>{"process 5, which joined"});
      EXPECT_TRUE(fates[0].changes[0].lost.empty());
      EXPECT_EQ(fates[0].world_size, kRanks + 1);
      EXPECT_GE(fates[0].first.at(0), 5U);
      const auto [found, first] = before.try_emplace({fates[0].first[0], fates[0].in_sync[0]}, fates);
      for (std::size_t who = 0; !first && who < fates.size(); ++who) {
        expect_equal(found->second[who], fates[who], true);
        ++compared;
      }
    }
  });
  EXPECT_GE(compared, kStepShare == 1 ? 5 : 0);
}

TEST(Joins, OthersGoOnWhenAllOfTheStartHaveEnded) {
  Plan plan = joining(kPolicies[2], {3, 6, 9});
  plan.leaves_before = {{0, 40}, {1, 42}, {2, 44}, {3, 46}};
  const std::vector<Fate> fates = run(plan);
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{4, 5, 6}));
  expect_alike(fates, survivors_of(fates));
  EXPECT_EQ(fates[4].world_size, 3);
  EXPECT_EQ(fates[4].changes.back().rank, 0);
}

TEST(Joins, ARankThatEndsIsReplacedByOneThatJoins) {
  Plan plan = joining(kPolicies[4], {10});
  plan.leaves_before = {{0, 5}};
  const std::vector<Fate> fates = run(plan);
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{1, 2, 3, kFirstJoiner}));
  expect_alike(fates, survivors_of(fates));
  EXPECT_EQ(fates[1].world_size, kRanks);
}

// Ranks, spares and joiners end at random times; others are silent, or cut off from some processes.
TEST(Joins, SurvivorsOfManyDeathsHoldTheSame) {
  const int seeds = environment_int("GRADWIRE_SEEDS", std::max(3, 20 / kStepShare));
  std::atomic<int> taken = 0;
  for_each_at_once(std::views::iota(1, seeds + 1), [&](int seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto below = [&](unsigned limit) { return static_cast<unsigned>(random() % limit); };
    const unsigned kind = below(static_cast<unsigned>(std::size(kPolicies)));
    Plan plan = joining(kPolicies[kind], {});
    plan.saves = plan.rescales = kind >= kFirstLate && below(2) == 0;
    plan.errors = {ErrorCode::too_few};  // all processes that held the parameters may have ended
    plan.spares = below(3) == 0 ? 1 : 0;
    for (unsigned joins = 1 + below(3); joins > 0; --joins) {
      plan.joins_at.push_back(below(30));
    }
    std::ranges::sort(plan.joins_at);
    for (unsigned deaths = below(5); deaths > 0; --deaths) {
      const Id who = below(kRanks + static_cast<unsigned>(plan.spares));
      plan.dies_after[who] = 1 + static_cast<std::int64_t>(below(6000));
    }
    for (Id joiner = 0; joiner < plan.joins_at.size(); ++joiner) {
      if (below(3) == 0) {
        plan.dies_after[kFirstJoinerId + static_cast<Id>(plan.spares) + joiner] =
            1 + static_cast<std::int64_t>(below(300));
      }
    }
    const std::vector<Fate> fates = run(plan);
    const std::vector<Id> survivors = survivors_of(fates);
    expect_alike(fates, survivors);
    for (const Id id : survivors) {
      taken += id >= kFirstJoiner + static_cast<std::size_t>(plan.spares) ? 1 : 0;
    }
  });
  EXPECT_GE(taken, seeds / 4);
}

// The ranks go on without such a process.
TEST(Joins, OneOfAnotherPolicyModelOrNumberOfSparesIsRefused) {
  const std::string int4 = "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n";
  const std::string spares = std::string(kPolicies[1].policy) + "[elastic]\nspares = 1\n";
  for (const auto& [policy, said] :
       {std::pair(int4, "int4"), {spares, "spares: the job has 0"}, {std::string(), "8000"}}) {
    Plan plan = joining({.policy = kPolicies[1].policy}, {3});
    plan.errors = {ErrorCode::mismatch};
    if (policy.empty()) {
      plan.smaller = {{kFirstJoinerId, 1000}};
    } else {
      plan.policies = {{kFirstJoinerId, policy}};
    }
    const std::vector<Fate> fates = run(plan);
    ASSERT_TRUE(fates[kFirstJoiner].error);
    const std::string text = fates[kFirstJoiner].error->what();
    EXPECT_NE(text.find("process 5, which joined, cannot be a rank"), std::string::npos) << text;
    EXPECT_NE(text.find(said), std::string::npos) << text;
    EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 2, 3}));
    EXPECT_TRUE(fates[0].changes.empty());
  }
}

// The lowest rank is cut off when the process comes. Mutation tried: only the lowest rank refuses.
TEST(Joins, AnyRankRefuses) {
  Plan plan = joining({.policy = kPolicies[1].policy}, {3});
  plan.errors = {ErrorCode::mismatch};
  plan.policies = {{kFirstJoinerId, "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n"}};
  plan.cut = std::make_shared<Cut>(std::set<Id>{0});
  plan.cuts_after = {{0, Life::kForEver}};
  plan.dies_in = {{0, {3, 1}}};  // then rank 0 is cut off
  plan.timeout = std::chrono::seconds(8);
  plan.errors.insert(ErrorCode::timeout);
  plan.joins_after = milliseconds(100);
  plan.errors.insert(ErrorCode::expelled);
  const std::vector<Fate> fates = run(plan);
  ASSERT_TRUE(fates[kFirstJoiner].error);
  EXPECT_EQ(fates[kFirstJoiner].error->code(), ErrorCode::mismatch) << fates[kFirstJoiner].error->what();
}

TEST(Joins, OneThatComesWhenTheJobIsOverIsToldSo) {
  const std::vector<Fate> fates = run(joining(kPolicies[1], {60}));
  EXPECT_TRUE(fates[kFirstJoiner].unused);
  EXPECT_TRUE(fates[0].changes.empty());
}

TEST(Joins, NobodyJoinsWhereThatWasNotSaid) {
  const auto processes = make_inproc_processes(2);
  EXPECT_EQ(error_of([&] { static_cast<void>(join_inproc_processes(*processes[0])); }).code(),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace gradwire::test
