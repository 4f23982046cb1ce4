// Tests sync modes in policies and plans: their meaning, the error for each mistake, and the steps at which they act.
#include "policy/sync.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradwire/error.hpp"
#include "plan/call_plan.hpp"
#include "plan/plan.hpp"

namespace gradwire::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Sync sync_of(const std::string& value) {
  return Policy::parse("[[rule]]\nmatch = \"e\"\nsync = " + value, "p").rules.at(0).policy.sync;
}

TEST(SyncPolicy, ReadsEveryMode) {
  EXPECT_EQ(Policy().defaults.sync, Sync{});
  EXPECT_EQ(sync_of("\"step\""), Sync{});
  EXPECT_EQ(sync_of("{ every = 8 }"), (Sync{.mode = Sync::Mode::every, .every = 8}));
  EXPECT_EQ(
      sync_of("{ every = 32, offset = 5, stagger = true, outer = { lr = 0.5, momentum = 0.8 }, from_step = 100 }"),
      (Sync{.mode = Sync::Mode::every,
            .every = 32,
            .offset = 5,
            .stagger = true,
            .from_step = 100,
            .outer = Sync::Outer{.learning_rate = 0.5, .momentum = 0.8}}));
  EXPECT_EQ(sync_of("{ every = 16, outer = {} }").outer, Sync::Outer{});
  EXPECT_EQ(sync_of("{ async = true, staleness = 4 }"), (Sync{.mode = Sync::Mode::async, .staleness = 4}));
  EXPECT_EQ(sync_of("{ rows = true, staleness = 16 }"), (Sync{.mode = Sync::Mode::rows, .staleness = 16}));
}

TEST(SyncPolicy, RulesTakeTheModeOfTheDefaultsUnlessTheySayAnother) {
  const Policy policy = Policy::parse(
      "[defaults]\nsync = { every = 8 }\n[[rule]]\nmatch = \"a\"\n[[rule]]\nmatch = \"b\"\nsync = \"step\"\n");
  EXPECT_EQ(policy.rules[0].policy.sync.every, 8U);
  EXPECT_EQ(policy.rules[1].policy.sync, Sync{});
}

TEST(SyncPolicy, EachMistakeIsNamedAtItsPlace) {
  struct Bad {
    std::string value;
    std::string place;
    std::string what;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"\"epoch\"", "3:8", "unknown sync \"epoch\"; write \"step\" or a table such as { every = 8 }"},
           {"8", "3:8", "sync must be \"step\" or a table such as { every = 8 }, not an integer"},
           {"{}", "3:8", "sync has no mode; write every = N, async = true or rows = true"},
           {"{ every = 0 }", "3:18", "every is 0; write the steps between two synchronisations"},
           {"{ evry = 8 }", "3:10", "unknown key \"evry\" in sync; did you mean \"every\"?"},
           {"{ every = 8, outer = { lr = 0.7 } }", "3:8",
            "outer with every = 8: outer momentum needs 16 local steps or more; raise every, or leave outer out"},
           {"{ every = 16, outer = { momentum = 1.0 } }", "3:8", "momentum of outer is 1; write a number from 0"},
           {"{ every = 16, outer = { lr = 0 } }", "3:8", "lr of outer is 0; write a number above 0"},
           {"{ every = 16, outer = { lr = \"0.7\" } }", "3:37", "lr must be a number such as 0.7, not a string"},
           {"{ every = 16, outer = 0.7 }", "3:30", "outer must be a table such as { lr = 0.7, momentum = 0.9 }"},
           {"{ every = 8, offset = 8 }", "3:8", "offset is 8, beyond every = 8"},
           {"{ every = 8, staleness = 2 }", "3:8", "staleness belongs to { async = true } and { rows = true }"},
           {"{ every = 8, async = true, staleness = 2 }", "3:29", "async beside every; a rule has one mode"},
           {"{ async = true }", "3:8", "async without a bound; write staleness = 4"},
           {"{ rows = true }", "3:8", "rows without a bound; write staleness = 4"},
           {"{ staleness = 4 }", "3:8", "sync has no mode"},
           {"{ async = false, staleness = 4 }", "3:18", "async is false; write true, or sync = \"step\""},
           {"{ async = true, staleness = 65 }", "3:8", "staleness is 65; write a number of steps from 0 to 64"},
           {"{ async = true, staleness = -1 }", "3:36",
            "staleness is -1; write the steps by which results may be late"},
           {"{ async = true, staleness = 1, offset = 1 }", "3:8", "offset, stagger and outer belong to { every = N }"},
           {"{ rows = true, staleness = 1, from_step = 5 }", "3:8", "rows cannot begin later"}}) {
    try {
      (void)sync_of(bad.value);
      ADD_FAILURE() << bad.value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), StartsWith("p:" + bad.place + ": " + bad.what)) << bad.value;
    }
  }
  const auto expect_refused = [](const char* text, const std::string& what) {
    try {
      (void)Policy::parse(text, "p");
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), StartsWith(what));
    }
  };
  expect_refused("[defaults]\nsync = { rows = true, staleness = 1 }", "p:2:8: rows in [defaults] would make every");
  expect_refused("[[rule]]\nmatch = \"e\"\ncodec = \"auto\"\nsync = { every = 8 }", "p:4:8: codec \"auto\" chooses by");
  expect_refused("[defaults]\nsync = { every = 8 }\n[[rule]]\nmatch = \"e\"\ncodec = \"auto\"",
                 "p:5:9: codec \"auto\" chooses by");
}

std::vector<std::uint64_t> synced_at(const Sync& sync, std::uint32_t offset, std::uint64_t until) {
  std::vector<std::uint64_t> steps;
  for (std::uint64_t step = 0; step < until; ++step) {
    if (syncs_parameters(sync, offset, step)) {
      steps.push_back(step);
    }
  }
  return steps;
}

TEST(SyncSteps, AsManyLocalStepsLieBetweenSynchronisations) {
  using Steps = std::vector<std::uint64_t>;
  const Sync sync{.mode = Sync::Mode::every, .every = 8};
  EXPECT_EQ(synced_at(sync, 0, 30), (Steps{8, 16, 24}));
  EXPECT_EQ(synced_at(sync, 3, 30), (Steps{5, 13, 21, 29}));
  Sync later = sync;
  later.from_step = 10;
  EXPECT_EQ(synced_at(later, 0, 30), (Steps{18, 26}));
  EXPECT_EQ(synced_at(later, 7, 20), (Steps{11, 19}));
  EXPECT_TRUE(synced_at({.mode = Sync::Mode::every, .every = 1}, 0, 30).empty()) << "this is like step";
  EXPECT_FALSE(active(later, 9));
  EXPECT_TRUE(active(later, 10));
  EXPECT_TRUE(precedes_local_steps(later, 9));
  EXPECT_FALSE(precedes_local_steps(later, 8) || precedes_local_steps(later, 10) || precedes_local_steps(sync, 0));
}

std::vector<TensorInfo> tensors(std::uint32_t parameters = 2) {
  std::vector<TensorInfo> all{
      {"fc1", 4096, DType::f32, 2}, {"fc2", 8192, DType::f32, 2}, {"embed", 4096, DType::f32, 2}};
  for (TensorInfo& tensor : all) {
    tensor.parameters = parameters;
  }
  return all;
}

TEST(SyncPlan, ExplainShowsModeBoundAndTraffic) {
  const std::string text = plan::make_plan(Policy::parse(R"(
[defaults]
codec = "int8"
small = "off"
[[rule]]
match = "fc1"
sync = { every = 8, from_step = 100 }
[[rule]]
match = "fc2"
sync = { every = 32, outer = {} }
)",
                                                         "p"),
                                           tensors(), {})
                               .explain();
  EXPECT_THAT(text, HasSubstr(R"(
group         sync                                   behind by       what travels                 encoded a step  of step
rule 1 (fc1)  every 8, from step 100                 8 local steps   parameters and state, exact            4KiB    0.992
rule 2 (fc2)  every 32 (outer lr 0.7, momentum 0.9)  32 local steps  changes, int8                          258B   0.0312
default       step                                   none            gradients, int8                    4.031KiB        1
)"));
  EXPECT_THAT(plan::make_plan(Policy(), tensors(), {}).explain(), Not(HasSubstr("of step")));
}

std::string refusal(const std::string& policy, const std::vector<TensorInfo>& of,
                    const plan::PlanOptions& options = {}) {
  try {
    (void)plan::make_plan(Policy::parse(policy, "p"), of, options);
    return "accepted";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(SyncPlan, RefusesTensorsThatAModeCannotTake) {
  const std::string every = "[defaults]\nsmall = \"off\"\nsync = { every = 16, outer = {} }";
  EXPECT_EQ(refusal(every, tensors(1)), "accepted");
  EXPECT_EQ(refusal(every, tensors(0)),
            "sync every 16 (outer lr 0.7, momentum 0.9) of tensor \"embed\" (default): it has no parameter to average; "
            "register it: add(name, gradient, parameter, {optimizer state})");
  auto uneven = tensors(2);
  uneven[0].parameters = 3;
  EXPECT_THAT(refusal(every, uneven), HasSubstr("\"fc1\" (default): it has 2 optimizer state(s), others of its group "
                                                "have 1; register as many for each"));
  auto halves = tensors(1);
  halves[2].dtype = DType::bf16;
  EXPECT_THAT(refusal(every, halves), HasSubstr("\"embed\" (default): changes of parameters of 16 bits round away"));
  EXPECT_THAT(refusal(every, tensors(1), {.reduction = Reduction::sum}),
              HasSubstr("averages parameters; make the session with Reduction::mean"));
  EXPECT_THAT(refusal("[[rule]]\nmatch = \"embed\"\nsync = { rows = true, staleness = 4 }", tensors()),
              HasSubstr("rule 1 (embed): only rows that were touched are to travel"));
  Policy in_code = Policy::uniform("int8");
  in_code.defaults.sync = {.mode = Sync::Mode::async, .staleness = 100};
  EXPECT_THROW((void)plan::make_plan(in_code, tensors(), {}), Error);
  EXPECT_THROW(plan::CallPlanner(Policy::parse("[defaults]\nsync = { async = true, staleness = 1 }")), Error);
}

TEST(SyncPlan, TheFingerprintCoversModesAndTheMessageNamesThem) {
  const auto plan = [](const std::string& sync, std::uint32_t parameters = 2) {
    return plan::make_plan(Policy::parse("[defaults]\nsmall = \"off\"\nsync = " + sync, "p"), tensors(parameters),
                           {.world_size = 4});
  };
  const std::string every = "{ every = 8 }";
  const plan::Plan mine = plan(every);
  const std::vector<std::pair<const char*, std::string>> others{
      {"\"step\"", "rank 0 alone has sync every 8"},
      {"{ every = 9 }", "rank 0 has sync every 8, rank 1 has sync every 9"},
      {"{ every = 8, offset = 1 }", "rank 1 alone has offset 1"},
      {"{ every = 8, from_step = 1 }", "rank 1 alone has from step 1"},
      {"{ async = true, staleness = 8 }", "rank 0 has sync every 8, rank 1 has sync async, staleness 8"}};
  for (const auto& [other, difference] : others) {
    EXPECT_NE(mine.fingerprint(), plan(other).fingerprint()) << other;
    EXPECT_EQ(plan::first_difference(mine.describe(), 0, plan(other).describe(), 1),
              "policy of tensor 0 \"fc1\": " + difference + "; give every rank the same policy and the same options");
  }
  EXPECT_NE(plan("{ async = true, staleness = 1 }").fingerprint(),
            plan("{ async = true, staleness = 2 }").fingerprint());
  const auto outer = [&](const std::string& settings) {
    return plan("{ every = 16, outer = { " + settings + " } }").describe();
  };
  const std::string settings = outer("lr = 0.7, momentum = 0.9");
  EXPECT_THAT(plan::first_difference(settings, 0, outer("lr = 0.7004, momentum = 0.9"), 1),
              HasSubstr("rank 1 has sync every 16 (outer lr 0.7004,"));
  EXPECT_THAT(plan::first_difference(settings, 0, outer("lr = 0.7, momentum = 0.90000000000000013"), 1),
              HasSubstr("momentum 0.9000000000000001)"));
  EXPECT_EQ(to_string({.mode = Sync::Mode::every, .every = 16, .outer = Sync::Outer{.learning_rate = 0.70041}}),
            "every 16 (outer lr 0.7, momentum 0.9)")
      << "this text is for people";
  EXPECT_NE(mine.fingerprint(), plan(every, 3).fingerprint());
  EXPECT_EQ(plan("{ every = 1 }").fingerprint(), plan("\"step\"").fingerprint()) << "every = 1 is step";
}

TEST(SyncPlan, StaggeredBucketsAreSynchronisedAtDifferentSteps) {
  Policy policy = Policy::parse(
      "[defaults]\nsmall = \"off\"\nsync = { every = 8, stagger = true, offset = 1 }\n"
      "[bucket]\nbytes = \"16KiB\"");
  const plan::Plan plan = plan::make_plan(policy, tensors(), {});
  ASSERT_EQ(plan.buckets.size(), 3U);
  EXPECT_EQ(plan.buckets[0].sync_offset, 1U);
  EXPECT_EQ(plan.buckets[1].sync_offset, 3U);
  EXPECT_EQ(plan.buckets[2].sync_offset, 6U);
  policy.defaults.sync.stagger = false;
  EXPECT_EQ(plan::make_plan(policy, tensors(), {}).buckets[2].sync_offset, 1U);
}

}  // namespace
}  // namespace gradwire::policy
