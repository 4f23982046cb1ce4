// Tests codec = "auto" in policies and plans: what may be chosen, and the error for each mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exchange/default_codecs.hpp"
#include "gradwire/error.hpp"
#include "plan/call_plan.hpp"
#include "plan/plan.hpp"

namespace gradwire::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CodecSpec codec(const char* text) { return CodecSpec::parse(text); }

std::string error_of(const std::string& text) {
  try {
    (void)Policy::parse(text, "p.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

plan::Plan plan_of(const std::string& policy, const std::vector<TensorInfo>& tensors) {
  return plan::make_plan(Policy::parse(policy, "p.toml"), tensors, {.world_size = 4});
}

TEST(AutomaticPolicy, WhatIsAllowed) {
  const Policy policy = Policy::parse(R"(
[defaults]
codec = "auto"
allow = ["bf16", "int8", "int4"]
[link]
bandwidth = "8Gbit/s"
latency = "20us"
[[rule]]
match = "a"
allow = ["int8"]
[[rule]]
match = "b"
codec = "int4"
[[rule]]
match = "c"
codec = "auto"
)");
  EXPECT_THAT(policy.defaults.allow, ElementsAre(codec("bf16"), codec("int8"), codec("int4")));
  EXPECT_EQ(policy.defaults.codec, codec("bf16"));
  EXPECT_THAT(policy.rules[0].policy.allow, ElementsAre(codec("int8")));
  EXPECT_FALSE(policy.rules[1].policy.is_auto());
  EXPECT_EQ(policy.rules[2].policy.allow, policy.defaults.allow);
  ASSERT_TRUE(policy.link);
  EXPECT_EQ(policy.link->bytes_per_second, 1e9);
  EXPECT_EQ(policy.link->latency, std::chrono::microseconds(20));
  EXPECT_THAT(Policy::parse("[defaults]\ncodec = \"auto\"").defaults.allow, ElementsAre(codec("bf16"), codec("int8")));
  EXPECT_EQ(Policy::automatic({"bf16", "int4"}).defaults.allow[1], codec("int4"));
}

TEST(AutomaticPolicy, Mistakes) {
  const std::string automatic = "[defaults]\ncodec = \"auto\"\n";
  EXPECT_THAT(error_of("[defaults]\nallow = [\"int8\"]"),
              HasSubstr("p.toml:2:9: allow has no effect with codec \"int8\""));
  EXPECT_THAT(error_of(automatic + "allow = []"), HasSubstr("p.toml:3:9: allow: no codec is left to choose"));
  EXPECT_THAT(error_of(automatic + "allow = \"int8\""), HasSubstr("3:9: allow must be an array of codecs such as"));
  EXPECT_THAT(error_of(automatic + "allow = [\"int8\", \"bf16\"]"),
              HasSubstr("allow: bf16 after int8 takes no fewer bits; order codecs from the best quality"));
  EXPECT_THAT(error_of(automatic + "allow = [\"exact\", \"bf16\"]"), HasSubstr("exact is a candidate always"));
  EXPECT_THAT(error_of(automatic + "allow = [\"auto\"]"), HasSubstr("3:10: allow cannot be \"auto\""));
  EXPECT_THAT(error_of(automatic + "second_hop = \"int8\""), HasSubstr("2:9: codec \"auto\" with second_hop"));
  EXPECT_THAT(error_of(automatic + "warmup = [ { until_step = 3, codec = \"int8\" } ]"), HasSubstr("with warmup"));
  EXPECT_THAT(error_of(automatic + "algorithm = \"dense\""), HasSubstr("codec \"auto\" has no effect"));
  EXPECT_THAT(error_of("deterministic = true\n" + automatic), HasSubstr("3:9: codec \"auto\" chooses by measurement"));
  EXPECT_THAT(error_of(automatic + "error_feedback = \"off\"\nallow = [\"int8\", \"sign\"]"),
              HasSubstr("sign diverges without error feedback"));
  EXPECT_THAT(error_of("[defaults]\nsmall = { codec = \"auto\" }"), HasSubstr("codec cannot be \"auto\""));
  EXPECT_THAT(error_of("[link]\nlatency = \"1us\""), HasSubstr("1:1: [link] without bandwidth"));
  EXPECT_THAT(error_of("[link]\nbandwidth = \"fast\""), HasSubstr("2:13:"));
  EXPECT_THAT(error_of("[link]\nbandwidth = \"0Gbit/s\""), HasSubstr("2:13:"));
  EXPECT_THAT(error_of("[bucket]\nbytes = \"auto\""), HasSubstr("2:9: [bucket] bytes = \"auto\" needs [link]"));
}

TEST(AutomaticPolicy, LevelsOfABucket) {
  const plan::Plan plan = plan_of("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\", \"int8\", \"topk(1%)+int8\"]",
                                  {{"w", 1 << 20, DType::f32}, {"b", 100, DType::f32}});
  ASSERT_EQ(plan.buckets.size(), 2U);
  EXPECT_TRUE(plan.is_auto());
  const plan::Bucket& large = plan.buckets[1];
  ASSERT_EQ(large.levels.size(), 4U);
  EXPECT_EQ(large.levels[0].algorithm, Algorithm::dense);
  EXPECT_FALSE(large.levels[0].stage.error_feedback);
  EXPECT_EQ(large.levels[1].stage.codec, codec("bf16"));
  EXPECT_FALSE(large.levels[1].stage.error_feedback) << "topk's feedback does not pay for bf16";
  EXPECT_TRUE(large.levels[3].stage.error_feedback);
  EXPECT_EQ(large.levels[3].stage.second_hop, exchange::default_second_hop(codec("topk(1%)+int8"), 4));
  const plan::Bucket& small = plan.buckets[0];
  ASSERT_EQ(small.levels.size(), 2U) << "small tensors get a choice too";
  EXPECT_EQ(small.levels[1].stage.codec, codec("bf16"));
  EXPECT_THAT(plan.explain(), HasSubstr("auto (bf16, int8, topk(41/4096)+int8)"));
  EXPECT_FALSE(plan_of("", {{"w", 1 << 20, DType::f32}}).is_auto());
}

TEST(AutomaticPolicy, RanksMustAllowTheSame) {
  const std::vector<TensorInfo> tensors{{"w", 1 << 20, DType::f32}};
  const std::string one = plan_of("[defaults]\ncodec = \"auto\"", tensors).describe();
  const std::string other = plan_of("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\"]", tensors).describe();
  EXPECT_THAT(plan::first_difference(one, 0, other, 1), HasSubstr("auto among exact; bf16; int8"));
}

TEST(AutomaticPolicy, MistakesInCode) {
  const auto plan = [](const Policy& policy) {
    (void)plan::make_plan(policy, {{"w", 1 << 20, DType::f32}}, {.world_size = 2});
  };
  Policy unordered = Policy::automatic();
  std::swap(unordered.defaults.allow[0], unordered.defaults.allow[1]);
  EXPECT_THROW(plan(unordered), Error);
  Policy deterministic = Policy::automatic();
  deterministic.deterministic = true;
  EXPECT_THROW(plan(deterministic), Error);
  EXPECT_THROW((void)Policy::automatic({}), Error);
}

}  // namespace
}  // namespace gradwire::policy
