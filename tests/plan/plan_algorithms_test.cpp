// Tests the algorithm that a plan gives each bucket if the policy leaves it open.
#include "plan/plan_algorithms.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/error.hpp"

namespace gradwire::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kLarge = 4 << 20;

Plan plan_of(const std::string& policy, const std::vector<std::uint32_t>& nodes, std::uint64_t count = kLarge,
             bool knows_tiers = true) {
  return make_plan(Policy::parse("[defaults]\nsmall = \"off\"\n" + policy), {{"a", count, DType::f32, 1}},
                   {.world_size = static_cast<int>(nodes.size()), .nodes = nodes, .knows_tiers = knows_tiers});
}

const std::vector<std::uint32_t> kTwoByTwo{0, 0, 1, 1};

TEST(PlanAlgorithms, CodecsFollowWhatIsChosen) {
  const Plan tiered = plan_of("codec = \"int4\"\n[tier.intra]\ncodec = \"fp16\"", kTwoByTwo);
  ASSERT_EQ(tiered.buckets.size(), 1U);
  EXPECT_EQ(tiered.buckets[0].algorithm, Algorithm::hierarchical);
  EXPECT_EQ(tiered.tensors[0].policy.algorithm, Algorithm::hierarchical);
  EXPECT_EQ(policy::to_string(tiered.buckets[0].stages, {}), "int4, intra fp16, error feedback");
  EXPECT_THAT(tiered.explain(),
              HasSubstr("algorithm of default by the cost model: hierarchical: 2 nodes of 2 ranks\n"));
  const Plan flat = plan_of("codec = \"int4\"\n[tier.intra]\ncodec = \"fp16\"", {0, 1, 2, 3});
  EXPECT_EQ(policy::to_string(flat.buckets[0].stages, {}), "int4, error feedback");
  EXPECT_EQ(plan_of("", {0, 1}, 1000).buckets[0].algorithm, Algorithm::one_shot);
  EXPECT_EQ(plan_of("", {0, 1}, 1000).buckets[0].stages[0].second_hop, CodecSpec::parse("int8"));
}

TEST(PlanAlgorithms, WhatIsNamedIsKept) {
  for (const char* name : {"two_shot", "one_shot", "hierarchical"}) {
    const Plan plan = plan_of("algorithm = \"" + std::string(name) + "\"", kTwoByTwo);
    EXPECT_EQ(to_string(plan.buckets[0].algorithm), name);
    EXPECT_THAT(plan.explain(), Not(HasSubstr("by the cost model")));
  }
  EXPECT_EQ(plan_of("codec = \"exact\"\nalgorithm = \"two_shot\"", {0, 1}).buckets[0].algorithm, Algorithm::two_shot);
}

// Mutation tried: device sessions are treated like others.
TEST(PlanAlgorithms, OverDeviceMemoryNothingIsChosen) {
  for (const std::uint64_t count : {std::uint64_t{1000}, kLarge}) {
    for (const char* codec : {"int8", "exact"}) {
      const Plan plan = plan_of("codec = \"" + std::string(codec) + "\"", kTwoByTwo, count, false);
      EXPECT_EQ(plan.buckets[0].algorithm, Algorithm::two_shot);
      EXPECT_THAT(plan.explain(), HasSubstr("two_shot: over device memory\n"));
    }
  }
}

// A warm-up compresses, and a deterministic sum must not be the library's.
TEST(PlanAlgorithms, ExactIsDenseWhereThatMayBe) {
  EXPECT_EQ(plan_of("codec = \"exact\"", {0, 1}).buckets[0].algorithm, Algorithm::dense);
  EXPECT_EQ(
      plan_of("codec = \"exact\"\nwarmup = [ { until_step = 9, codec = \"int8\" } ]", {0, 1}).buckets[0].algorithm,
      Algorithm::two_shot);
  EXPECT_EQ(plan_of("codec = \"exact\"\nsecond_hop = \"int8\"", {0, 1}).buckets[0].algorithm, Algorithm::two_shot);
  Policy policy = Policy::uniform("exact");
  policy.deterministic = true;
  EXPECT_EQ(make_plan(policy, {{"a", kLarge, DType::f32, 1}}, {.world_size = 2}).buckets[0].algorithm,
            Algorithm::two_shot);
}

// Equal inputs give equal texts, and a different choice is reported.
TEST(PlanAlgorithms, RanksComeToTheSameAndSayWhereNot) {
  const Plan one = plan_of("", kTwoByTwo);
  EXPECT_EQ(one.describe(), plan_of("", kTwoByTwo).describe());
  EXPECT_EQ(one.fingerprint(), plan_of("algorithm = \"hierarchical\"", kTwoByTwo).fingerprint());
  const Plan fast = plan_of("[link]\nbandwidth = \"400Gbit/s\"\nlatency = \"1us\"", kTwoByTwo);
  EXPECT_EQ(fast.buckets[0].algorithm, Algorithm::two_shot);
  EXPECT_THAT(first_difference(one.describe(), 0, fast.describe(), 3),
              HasSubstr("rank 0 has intra bf16, algorithm hierarchical, rank 3 has algorithm two_shot;"));
}

// If codecs are chosen by a measured link, so is their algorithm; a named or fixed algorithm stays.
TEST(PlanAlgorithms, AMeasuredLinkChoosesOnceMore) {
  const Policy policy = Policy::parse(
      "[defaults]\ncodec = \"auto\"\nsmall = \"off\"\n[[rule]]\nmatch = \"b\"\ncodec = \"int8\"\n"
      "[[rule]]\nmatch = \"c\"\nalgorithm = \"hierarchical\"\n");
  Plan plan =
      make_plan(policy, {{"a", kLarge, DType::f32, 1}, {"b", kLarge, DType::f32, 1}, {"c", kLarge, DType::f32, 1}},
                {.world_size = 4, .nodes = kTwoByTwo});
  const auto algorithms = [&] {
    std::vector<Algorithm> all;
    for (const TensorPlan& tensor : plan.tensors) {
      all.push_back(plan.buckets[tensor.bucket].algorithm);
      EXPECT_EQ(tensor.policy.algorithm, all.back());
    }
    return all;
  };
  EXPECT_THAT(algorithms(), ::testing::Each(Algorithm::hierarchical));
  settle_again(plan, policy, Link::parse("400Gbit/s,1us"));
  EXPECT_THAT(algorithms(),
              ::testing::ElementsAre(Algorithm::two_shot, Algorithm::hierarchical, Algorithm::hierarchical));
  const Bucket& open = plan.buckets[plan.tensors[0].bucket];
  ASSERT_EQ(open.levels.size(), 3U);
  EXPECT_EQ(open.levels[0].algorithm, Algorithm::dense);
  EXPECT_EQ(open.levels[2].algorithm, Algorithm::two_shot);
  EXPECT_FALSE(open.levels[2].stage.intra);
}

}  // namespace
}  // namespace gradwire::plan
