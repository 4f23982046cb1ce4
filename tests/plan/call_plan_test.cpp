// Tests how calls of a job without a session are resolved: rules by size, dtype, order and communicator, the floor, and
// names if calls have them.
#include "plan/call_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "gradwire/error.hpp"
#include "plan/plan.hpp"

namespace gradwire::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMany = 1 << 20;

TEST(CallPlan, WithoutAPolicyLargeCallsAreInt8) {
  const CallPlanner planner{Policy()};
  struct Case {
    std::uint64_t count;
    DType dtype;
    Pass pass;
  };
  for (const Case& c : std::vector<Case>{{16384, DType::f32, Pass::no},  // 64 KiB: not below
                                         {16383, DType::f32, Pass::below_floor},
                                         {32768, DType::f16, Pass::no},
                                         {32767, DType::bf16, Pass::below_floor},
                                         {kMany, DType::f64, Pass::f64_not_asked},
                                         {8191, DType::f64, Pass::below_floor},
                                         {~0ULL, DType::f32, Pass::no},
                                         {0, DType::f32, Pass::below_floor}}) {
    const CallPlan plan = planner.resolve({.count = c.count, .dtype = c.dtype, .communicator_size = 4});
    EXPECT_EQ(plan.pass, c.pass) << c.count << " " << to_string(c.dtype);
    EXPECT_EQ(plan.compress(), c.pass == Pass::no);
    EXPECT_EQ(plan.policy.codec.to_string(), "int8") << "`small` is ignored";
    EXPECT_EQ(plan.why, "default");
    EXPECT_FALSE(plan.rule);
  }
  EXPECT_EQ(planner.floor(), 65536U);
  EXPECT_THAT(planner.notes(), IsEmpty());
}

TEST(CallPlan, AutomaticCallsHaveWays) {
  const auto ways = [](const CallPlan& plan) {
    std::string text;
    for (const policy::Stage& stage : plan.ways) {
      text += (text.empty() ? "" : ", ") + policy::to_string(stage);
    }
    return text;
  };
  const CallPlanner built_in(Policy::automatic({"int8"}));
  EXPECT_TRUE(built_in.is_auto() && built_in.only_automatic());
  EXPECT_EQ(built_in.floor(), 4096U) << "calls for which compression does not pay are measured, and pass";
  const CallPlan large = built_in.resolve({.count = kMany, .communicator_size = 4});
  EXPECT_EQ(ways(large), "int8");
  EXPECT_TRUE(large.compress());
  EXPECT_EQ(built_in.resolve({.count = 1023, .communicator_size = 4}).pass, Pass::below_floor);
  EXPECT_EQ(built_in.resolve({.count = kMany, .dtype = DType::f64, .communicator_size = 4}).pass, Pass::f64_not_asked);

  const auto planner = [](const std::string& text) { return CallPlanner(Policy::parse(text, "p.toml")); };
  const CallPlanner several = planner("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\", \"int8\", \"int4\"]\n");
  EXPECT_EQ(ways(several.resolve({.count = kMany})), "bf16, int8") << "int4 would leave residuals behind";
  EXPECT_THAT(several.notes(), ElementsAre(HasSubstr("codecs with error feedback are not chosen")));
  const CallPlanner none = planner("[defaults]\ncodec = \"auto\"\nallow = [\"int4\"]\n");
  EXPECT_EQ(none.resolve({.count = kMany}).pass, Pass::exact);
  const CallPlanner folded(Policy::parse("[defaults]\ncodec = \"auto\"\nallow = [\"int8\", \"int4\"]\n"),
                           AutoFeedback::where_allowed);
  EXPECT_EQ(ways(folded.resolve({.count = kMany})), "int8, int4, error feedback");
  EXPECT_THAT(folded.notes(), IsEmpty());
  EXPECT_EQ(planner("floor = \"1MiB\"\n[defaults]\ncodec = \"auto\"\n").floor(), 1U << 20);
  EXPECT_EQ(planner("[defaults]\ncodec = \"auto\"\n").floor(), 4096U);
  EXPECT_FALSE(planner("[defaults]\ncodec = \"auto\"\n[[rule]]\norder = 1\ncodec = \"auto\"\n").only_automatic());
  EXPECT_FALSE(planner("[defaults]\ncodec = \"auto\"\n[[rule]]\nmin_bytes = 9\ncodec = \"int8\"\n").only_automatic());
  EXPECT_FALSE(planner("[[rule]]\nmin_bytes = 9\ncodec = \"auto\"\n").only_automatic());
  EXPECT_TRUE(planner("[defaults]\ncodec = \"exact\"\n").only_exact());
  EXPECT_FALSE(planner("[defaults]\ncodec = \"exact\"\n[[rule]]\nmin_bytes = 9\ncodec = \"bf16\"\n").only_exact());
  EXPECT_FALSE(built_in.only_exact());
  EXPECT_TRUE(planner("[[rule]]\nmin_bytes = 9\ncodec = \"auto\"\n").is_auto());
  EXPECT_NE(planner("").describe(), planner("[link]\nbandwidth = \"1Gbit/s\"\n").describe()) << "algorithms";
  EXPECT_NE(planner("[defaults]\ncodec = \"auto\"\n").describe(),
            planner("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\"]\n").describe());
}

TEST(CallPlan, RulesMatchByOrderCommunicatorSizeAndSize) {
  const CallPlanner planner(Policy::parse(R"(
floor = 1000
[[rule]]
order = [0, 1]
codec = "exact"
[[rule]]
communicator_size = 2
codec = "bf16"
[[rule]]
order = 5
min_bytes = "1MiB"
codec = "topk(1%)+int8"
second_hop = "int8"
[[rule]]
dtype = "f64"
error_feedback = "on"
)",
                                          "p.toml"));
  const auto resolve = [&](const CallInfo& call) {
    const CallPlan plan = planner.resolve(call);
    return plan.policy.codec.to_string() + ", " + std::string(to_string(plan.pass)) + ", " + plan.why;
  };
  EXPECT_EQ(resolve({.count = kMany, .order = 0, .communicator_size = 2}),
            "exact, the policy asks for exact values, rule 1 at p.toml:3 matched calls 0 to 1");
  EXPECT_EQ(resolve({.count = kMany, .order = 1, .communicator_size = 8}),
            "exact, the policy asks for exact values, rule 1 at p.toml:3 matched calls 0 to 1");
  EXPECT_EQ(resolve({.count = 250, .order = 2, .communicator_size = 2}),
            "bf16, compressed, rule 2 at p.toml:6 matched communicator of 2");
  EXPECT_EQ(resolve({.count = 249, .order = 2, .communicator_size = 2}),
            "bf16, below the floor, rule 2 at p.toml:6 matched communicator of 2");
  EXPECT_EQ(resolve({.count = kMany, .order = 5, .communicator_size = 3}),
            "topk(41/4096)+int8, compressed, rule 3 at p.toml:9 matched at least 1MiB, call 5");
  EXPECT_EQ(resolve({.count = 250, .order = 5, .communicator_size = 3}), "int8, compressed, default");
  EXPECT_EQ(resolve({.count = kMany, .order = 6, .communicator_size = 3}), "int8, compressed, default");
  EXPECT_EQ(resolve({.count = kMany, .dtype = DType::f64, .order = 6, .communicator_size = 3}),
            "int8, compressed, rule 4 at p.toml:14 matched f64");

  const CallPlan plan = planner.resolve({.count = kMany, .order = 5, .communicator_size = 3});
  ASSERT_EQ(plan.stages.size(), 1U);
  EXPECT_EQ(plan.stages[0].second_hop.to_string(), "int8");
  EXPECT_TRUE(plan.stages[0].error_feedback);
  EXPECT_EQ(plan.rule, 2U);
}

TEST(CallPlan, NamesCountWhereThereAreSome) {
  const CallPlanner planner(
      Policy::parse("[[rule]]\nmatch = \"*.bias\"\ncodec = \"bf16\"\n[[rule]]\nndim = 1\ncodec = \"exact\"\n"
                    "[[rule]]\nmatch = \"a*\"\ncodec = \"fp16\"",
                    "p.toml"));
  const auto codec = [&](std::string_view name) {
    return planner.resolve({.count = kMany, .communicator_size = 4, .name = name}).policy.codec.to_string();
  };
  EXPECT_EQ(codec("fc.bias"), "bf16");
  EXPECT_EQ(codec("a.weight"), "fp16");
  EXPECT_EQ(codec("fc.weight"), "int8");
  EXPECT_EQ(codec(""), "int8") << "name rules are ignored, and ndim of a flat buffer is not known";
  EXPECT_THAT(planner.notes(), ElementsAre("rules 1, 3 of p.toml with `match`: ignored where calls have no names",
                                           "rule 2 of p.toml with `ndim`: ignored, calls have no dimensions"));
}

TEST(CallPlan, RulesThatNameCallsDecideAtOnce) {
  const auto any_role = [](const std::string& policy, const CallInfo& call) {
    return CallPlanner(Policy::parse(policy)).resolve(call).any_role;
  };
  const CallInfo call{.count = kMany, .communicator_size = 4, .communicator_name = "dp0"};
  EXPECT_FALSE(any_role("", call));
  EXPECT_TRUE(any_role("[defaults]\nroles = \"all\"", call));
  for (const char* condition : {"communicator_name = \"dp*\"", "communicator_size = 4", "min_bytes = 1",
                                "max_bytes = \"1GiB\"", "dtype = \"f32\""}) {
    const std::string rule = "[[rule]]\n" + std::string(condition) + "\n";
    EXPECT_TRUE(any_role(rule, call)) << condition;
    EXPECT_TRUE(any_role("[defaults]\nroles = \"gradients\"\n" + rule, call)) << condition;
    EXPECT_FALSE(any_role(rule + "roles = \"gradients\"", call)) << condition;
  }
  EXPECT_FALSE(any_role("[[rule]]\norder = 0\n", call)) << "an order says nothing about what the call carries";
  EXPECT_FALSE(any_role("[[rule]]\ncommunicator_name = \"tp*\"\n", call));
  EXPECT_FALSE(any_role("[[rule]]\ncommunicator_name = \"*\"\n", {.count = kMany})) << "no name";
}

TEST(CallPlan, PassesWhatIsExactAtEveryStepOnly) {
  const auto pass = [](const std::string& defaults) {
    return CallPlanner(Policy::parse("[defaults]\n" + defaults)).resolve({.count = kMany, .communicator_size = 4}).pass;
  };
  EXPECT_EQ(pass("codec = \"exact\""), Pass::exact);
  EXPECT_EQ(pass("algorithm = \"dense\""), Pass::exact);
  EXPECT_EQ(pass("codec = \"exact\"\nsecond_hop = \"bf16\""), Pass::no);
  EXPECT_EQ(pass("codec = \"int8\"\nwarmup = [ { until_step = 9, codec = \"exact\" } ]"), Pass::no);
  EXPECT_EQ(pass("codec = \"exact\"\nwarmup = [ { until_step = 9, codec = \"int8\" } ]"), Pass::no);
  EXPECT_EQ(pass("codec = \"int4\"\nalgorithm = \"one_shot\""), Pass::no);
}

// The text that ranks compare changes with everything that any call gets, but not with the file name.
TEST(CallPlan, DescribesAllThatRanksMustAgreeOn) {
  const std::string base = "[[rule]]\nmin_bytes = 10000000\ncodec = \"bf16\"\n";
  const auto describe = [](const std::string& text, const std::string& source = "p.toml") {
    return CallPlanner(Policy::parse(text, source)).describe();
  };
  std::set<std::string> texts{describe("")};
  for (const std::string& text : std::vector<std::string>{
           base, "floor = 1\n" + base, "[bucket]\nchunk = 4096\n" + base, "[bucket]\nchunk = \"56KiB\"\n" + base,
           "[defaults]\nmax_error = 0.01\n" + base, "[defaults]\nmax_error = 0.02\n" + base,
           "[defaults]\ncodec = \"auto\"\n" + base, "[defaults]\ncodec = \"auto\"\nmax_error = 0.02\n" + base,
           "[defaults]\ncodec = \"fp16\"\n" + base, "[defaults]\nerror_feedback = \"on\"\n" + base,
           "[defaults]\nsecond_hop = \"int4\"\n" + base, "[defaults]\nalgorithm = \"one_shot\"\n" + base,
           "[defaults]\nwarmup = [ { until_step = 9, codec = \"bf16\" } ]\n" + base,
           "[[rule]]\nmin_bytes = 10000001\ncodec = \"bf16\"\n",  // both are 9.54MiB as a text
           base + "order = 3\n", base + "order = [3, 4]\n", base + "communicator_size = 3\n",
           base + "dtype = \"f16\"\n", base + "[[rule]]\nmatch = \"a\"\n"}) {
    EXPECT_TRUE(texts.insert(describe(text)).second) << text << describe(text);
  }
  EXPECT_EQ(describe(base), describe(base, "elsewhere.toml"));
  EXPECT_THAT(first_difference(describe(base), 0, describe("floor = 1\n" + base), 2),
              HasSubstr("floor: rank 0 has 65536, rank 2 has 1; give every rank the same policy"));
}

TEST(CallPlan, WhatOnlySessionsDoIsRefused) {
  for (const char* key : {"decay = 0.9", "sync = { every = 8 }"}) {
    for (const char* table : {"[defaults]\n", "[[rule]]\nmatch = \"a\"\n"}) {
      try {
        const CallPlanner planner(Policy::parse(std::string(table) + "codec = \"int4\"\n" + key));
        ADD_FAILURE() << table << key;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
        EXPECT_THAT(error.what(), HasSubstr("needs a session"));
      }
    }
  }
}

TEST(CallPlan, PackedFramesAreSentThoughTheyLoseNothing) {
  const CallPlanner planner(Policy::parse("[defaults]\ncodec = \"exact+zstd\""));
  EXPECT_EQ(planner.resolve({.count = 1 << 20, .communicator_size = 4}).pass, Pass::no);
  EXPECT_FALSE(planner.only_exact());
  EXPECT_THAT(planner.notes(), ::testing::Contains(HasSubstr("over device memory write")));
  const CallPlanner exact(Policy::parse("[defaults]\ncodec = \"exact\""));
  EXPECT_EQ(exact.resolve({.count = 1 << 20, .communicator_size = 4}).pass, Pass::exact);
  EXPECT_THAT(exact.notes(), ::testing::Not(::testing::Contains(HasSubstr("over device memory write"))));
}

TEST(CallPlan, ABoundIsForCallsAlone) {
  const Policy policy = Policy::parse("[[rule]]\nmatch = \"a\"\nmax_error = 0.01\n");
  EXPECT_TRUE(CallPlanner(policy).bounds_errors());
  EXPECT_FALSE(CallPlanner(Policy()).bounds_errors());
  try {
    static_cast<void>(make_plan(policy, {{.name = "a", .count = 100}}, {.world_size = 2}));
    ADD_FAILURE() << "a session has accepted it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("max_error is for jobs without a session"));
  }
  Policy made;
  made.defaults.max_error = -1;
  EXPECT_THROW(CallPlanner{made}, Error);
}

TEST(CallPlan, BadRulesMadeInCodeAreRefused) {
  Policy policy;
  policy.rules.push_back({.match = {.order = OrderRange{3, 2}}});
  EXPECT_THROW(CallPlanner{policy}, Error);
}

}  // namespace
}  // namespace gradwire::plan
