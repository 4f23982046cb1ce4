// Tests how tensors are resolved, and the invariants of buckets over random models and policies.
#include "plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "gradwire/error.hpp"
#include "policy/rule.hpp"

namespace gradwire::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string plan_error(const Policy& policy, const std::vector<TensorInfo>& tensors, ErrorCode code) {
  try {
    (void)make_plan(policy, tensors, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Plan, FirstMatchWinsThenSmallThenDefault) {
  const Policy policy = Policy::parse(R"(
[[rule]]
match = "*.bias"
codec = "exact"
[[rule]]
match = "fc*"
codec = "fp16"
[defaults]
small = { below = 1000, codec = "bf16" }
)");
  const Plan plan = make_plan(policy,
                              {{"fc.bias", 4, DType::f32, 1},    // rule 1 matches, although small and rule 2 fits
                               {"fc.weight", 4, DType::f32, 2},  // rule 2 matches, although the tensor is small
                               {"a", 249, DType::f32, 1},        // 996 bytes: small
                               {"b", 250, DType::f32, 1},        // 1000 bytes: not small
                               {"c", 499, DType::f16, 1},        // 998 bytes in its own dtype
                               {"d", 0, DType::f64, 1}},
                              {});
  std::vector<std::string> codecs;
  std::vector<std::string> groups;
  for (const TensorPlan& tensor : plan.tensors) {
    codecs.push_back(tensor.policy.codec.to_string());
    groups.push_back(plan.groups[tensor.group].name);
  }
  EXPECT_THAT(codecs, ElementsAre("exact", "fp16", "bf16", "int8", "bf16", "bf16"));
  EXPECT_THAT(groups, ElementsAre("rule 1 (*.bias)", "rule 2 (fc*)", "small", "default", "small", "small"));
  EXPECT_EQ(plan.groups.size(), 4U);
  EXPECT_EQ(plan.groups.back().tensors, 3U);
  EXPECT_EQ(plan.groups.back().elements, 748U);
}

// A default CodecSpec means exact, but a codec that was not given does not.
TEST(Plan, RulesAndSmallTensorsMadeInCodeCompressUnlessTold) {
  Policy policy = Policy::uniform("exact");
  policy.rules.push_back({.match = {.glob = "fc*"}});
  policy.small = Policy::Small{.below = 1000};
  const Plan plan =
      make_plan(policy, {{"fc", 4, DType::f32, 1}, {"a", 249, DType::f32, 1}, {"b", 250, DType::f32, 1}}, {});
  std::vector<std::string> codecs;
  for (const TensorPlan& tensor : plan.tensors) {
    codecs.push_back(tensor.policy.codec.to_string());
  }
  EXPECT_THAT(codecs, ElementsAre("int8", "bf16", "exact"));
}

TEST(Plan, BucketsFormInReverseAndStartAsTheyComplete) {
  Policy policy = Policy::uniform("int8");
  policy.bucket_bytes = 400;  // 100 elements
  const Plan plan = make_plan(policy,
                              {{"a", 60, DType::f32, 1},
                               {"b", 30, DType::f16, 1},
                               {"c", 500, DType::f32, 1},
                               {"d", 40, DType::f32, 1},
                               {"e", 20, DType::f16, 1},
                               {"f", 60, DType::f32, 1},
                               {"g", 1, DType::f32, 1}},
                              {});
  std::vector<std::vector<std::size_t>> parts;
  for (const Bucket& bucket : plan.buckets) {
    parts.emplace_back();
    for (const Bucket::Part& part : bucket.parts) {
      parts.back().push_back(part.tensor);
    }
  }
  // The buckets are g f | d | c | e b (f16) | a: d does not fit with g and f, and c alone exceeds any bucket.
  EXPECT_THAT(parts, ElementsAre(ElementsAre(6, 5), ElementsAre(3), ElementsAre(2), ElementsAre(4, 1), ElementsAre(0)));
  EXPECT_EQ(plan.buckets[0].count, 61U);
  EXPECT_EQ(plan.tensors[5].offset, 1U);
  EXPECT_EQ(plan.tensors[1].bucket, 3U);
  EXPECT_EQ(plan.tensors[1].offset, 20U);
}

TEST(Plan, TheFirstBucketOfAGroupIsSmallSoThatBytesLeaveEarly) {
  const Policy policy = Policy::uniform("int8");
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 80; ++i) {
    tensors.push_back({"t" + std::to_string(i), 128 * 1024, DType::f32, 1});  // half a MiB each
  }
  const Plan plan = make_plan(policy, tensors, {});
  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : plan.buckets) {
    sizes.push_back(bucket.parts.size());
  }
  EXPECT_THAT(sizes, ElementsAre(2, 64, 14));
}

TEST(Plan, RulesWithoutEffectWarnOrFail) {
  const std::string rules = "[[rule]]\nmatch = \"*.bias\"\n[[rule]]\nmatch = \"fc.*\"\n[[rule]]\nndim = 7\n";
  const std::vector<TensorInfo> tensors{{"fc.bias", 4, DType::f32, 1}, {"x", 4, DType::f32, 1}};
  const Plan plan = make_plan(Policy::parse(rules, "p.toml"), tensors, {});
  EXPECT_THAT(plan.warnings,
              ElementsAre("rule 2 at p.toml:3 (fc.*) matched no tensor: earlier rules took all 1 that fit",
                          "rule 3 at p.toml:5 (ndim 7) matched no tensor"));
  EXPECT_THAT(
      plan_error(Policy::parse("strict = true\n" + rules, "p.toml"), tensors, ErrorCode::invalid_argument),
      HasSubstr(
          "rule 2 at p.toml:4 (fc.*) matched no tensor: earlier rules took all 1 that fit; correct or remove it"));
}

TEST(Plan, CommunicatorSizeIsTheWorldAndOrderIsForCallsOnly) {
  const Policy policy =
      Policy::parse("[[rule]]\norder = [0, 9]\ncodec = \"bf16\"\n[[rule]]\ncommunicator_size = 3\ncodec = \"fp16\"\n");
  const std::vector<TensorInfo> tensors{{"a", 1 << 20, DType::f32, 1}};
  const Plan three = make_plan(policy, tensors, {.world_size = 3});
  EXPECT_EQ(three.tensors[0].policy.codec.to_string(), "fp16");
  EXPECT_THAT(three.warnings, IsEmpty());
  EXPECT_THAT(three.notes, ElementsAre("tensors of a session have no order of call: rules with `order` are ignored"));
  const Plan four = make_plan(policy, tensors, {.world_size = 4});
  EXPECT_EQ(four.tensors[0].policy.codec.to_string(), "int8");
  EXPECT_THAT(four.warnings, ElementsAre(HasSubstr("(communicator of 3) matched no tensor")));
}

TEST(Plan, NameRulesAreIgnoredWithANoteWhereTensorsHaveNoNames) {
  const Policy policy = Policy::parse("[[rule]]\nmatch = \"*\"\ncodec = \"exact\"");
  const Plan plan = make_plan(policy, {{"", 4, DType::f32, 1}, {"", 5, DType::f32, 1}}, {});
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_THAT(plan.notes, ElementsAre("no tensor has a name: rules with `match` are ignored"));
  EXPECT_EQ(plan.tensors[0].policy.codec, CodecSpec::parse("bf16"));
}

TEST(Plan, AStrictPolicyRefusesRulesThatASessionIgnores) {
  const std::string strict = "strict = true\n[[rule]]\n";
  const std::vector<TensorInfo> nameless{{"", 4, DType::f32, 1}, {"", 5, DType::f32, 1}};
  EXPECT_EQ(plan_error(Policy::parse(strict + "match = \"*.bias\"\n", "p.toml"), nameless, ErrorCode::invalid_argument),
            "rule 1 at p.toml:2 (*.bias) is ignored: no tensor has a name; pass names to Session::add, or remove the "
            "rule, or write strict = false");
  EXPECT_EQ(plan_error(Policy::parse(strict + "order = 3\n", "p.toml"), {{"a", 4, DType::f32, 1}},
                       ErrorCode::invalid_argument),
            "rule 1 at p.toml:2 (call 3) is ignored: tensors of a session have no order of call; remove `order` or the "
            "rule, or write strict = false");
  // One name is enough for a rule that it matches.
  EXPECT_THAT(
      make_plan(Policy::parse(strict + "match = \"*.bias\"\n"), {{"", 4, DType::f32, 1}, {"a.bias", 5}}, {}).warnings,
      IsEmpty());
}

TEST(Plan, RefusesWhatCannotWork) {
  const std::vector<TensorInfo> tensors{{"x", 4, DType::f32, 1}};
  Policy bad_glob;
  bad_glob.rules.push_back({.match = {.glob = "[a"}, .policy = bad_glob.defaults});
  EXPECT_THAT(plan_error(bad_glob, tensors, ErrorCode::invalid_argument), HasSubstr("rule 1: bad glob"));
  Policy sign = Policy::uniform("sign");
  sign.defaults.error_feedback = ErrorFeedback::off;
  EXPECT_THAT(plan_error(sign, tensors, ErrorCode::invalid_argument),
              HasSubstr("default: sign diverges without error feedback; write error_feedback = \"auto\""));
  Policy unknown = Policy::uniform("int8");
  unknown.defaults.codec.values = 250;
  EXPECT_THAT(plan_error(unknown, tensors, ErrorCode::unsupported), HasSubstr("250"));
}

Plan plan_of(std::string_view policy, int world = 4) {
  return make_plan(Policy::parse(policy), {{"x", 100000, DType::f32, 1}}, {.world_size = world});
}

TEST(Plan, ErrorFeedbackComesWithFewBits) {
  const auto feedback = [](const std::string& keys) {
    return plan_of("[defaults]\n" + keys).buckets.at(0).stages.back().error_feedback;
  };
  for (const char* codec : {"int4", "int2", "sign", "topk(10%)+exact", "topk(1%)+int8"}) {
    EXPECT_TRUE(feedback("codec = \"" + std::string(codec) + "\"")) << codec;
  }
  for (const char* codec : {"exact", "exact+zstd", "bf16", "fp16", "fp8", "int8"}) {
    EXPECT_FALSE(feedback("codec = \"" + std::string(codec) + "\"")) << codec;
  }
  EXPECT_TRUE(feedback("codec = \"int8\"\nerror_feedback = \"on\""));
  EXPECT_TRUE(feedback("codec = \"int8\"\nsecond_hop = \"int4\""));
  EXPECT_FALSE(feedback("codec = \"int4\"\nerror_feedback = \"off\""));
  EXPECT_FALSE(feedback("codec = \"exact\"\nerror_feedback = \"on\""));
}

TEST(Plan, PackedFramesAreForHostMemory) {
  const std::vector<TensorInfo> tensors{{"x", 100000, DType::f32, 1}};
  for (const char* text :
       {"[defaults]\ncodec = \"exact+zstd\"", "[defaults]\ncodec = \"int8\"\nsecond_hop = \"exact+zstd\"",
        "[[rule]]\nmatch = \"*\"\ncodec = \"exact+zstd\"", "[tier.intra]\ncodec = \"exact+zstd\"",
        "[defaults]\nsmall = { codec = \"exact+zstd\" }",
        "[defaults]\ncodec = \"auto\"\nallow = [\"exact+zstd\", \"int8\"]",
        "[defaults]\nwarmup = [ { until_step = 5, codec = \"exact+zstd\" } ]"}) {
    const Policy policy = Policy::parse(text);
    EXPECT_NO_THROW(static_cast<void>(make_plan(policy, tensors, {.world_size = 2}))) << text;
    try {
      static_cast<void>(make_plan(policy, tensors, {.world_size = 2, .packs_frames = false}));
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("over device memory write codec = \"exact\""));
    }
  }
  EXPECT_NO_THROW(static_cast<void>(
      make_plan(Policy::parse("[defaults]\ncodec = \"exact\""), tensors, {.world_size = 2, .packs_frames = false})));
}

TEST(Plan, SaysHowResidualsAreKept) {
  const std::vector<TensorInfo> tensors{{"x", 100000, DType::f32, 1}, {"y", 100000, DType::f32, 1}};
  const Policy policy = Policy::parse("[[rule]]\nmatch = \"y\"\nresiduals = { dtype = \"bf16\" }");
  EXPECT_EQ(make_plan(policy, tensors, {.world_size = 2}).residual_form(1),
            (exchange::ResidualForm{.dtypes = {ResidualDType::f32, ResidualDType::bf16}, .rank = 1}));
  try {
    static_cast<void>(make_plan(policy, tensors, {.world_size = 2, .packs_frames = false}));
    FAIL() << "over device memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("codecs on devices keep theirs there, as f32, so remove it"));
  }
}

TEST(Plan, PackedFramesAreNeverANativeSumAndPlainInsideNodes) {
  const plan::Plan flat = plan_of("[defaults]\ncodec = \"exact+zstd\"");
  EXPECT_NE(flat.buckets.at(0).algorithm, Algorithm::dense);
  EXPECT_THAT(flat.explain(), HasSubstr("of exact+zstd the most"));
  const Policy tiered = Policy::parse("[defaults]\ncodec = \"exact+zstd\"\nalgorithm = \"hierarchical\"");
  const plan::Plan plan = make_plan(tiered, {{"x", 100000, DType::f32, 1}}, {.world_size = 4, .nodes = {0, 0, 1, 1}});
  EXPECT_EQ(plan.buckets.at(0).stages.back().intra, CodecSpec::exact());
}

TEST(Plan, TheOwnerEncodesLikeTheRanksUnlessToldOtherwise) {
  const auto second = [](const std::string& keys) {
    return plan_of("[defaults]\n" + keys).buckets.at(0).stages.back().second_hop.to_string();
  };
  EXPECT_EQ(second("codec = \"int4\""), "int4");
  EXPECT_EQ(second("codec = \"topk(1%)+int8\""), "topk(164/4096)+int8");
  EXPECT_EQ(second("codec = \"topk(10%)+int8\""), "int4");  // topk(40%)+int8 would take more bytes
  EXPECT_EQ(second("codec = \"topk(1%)+int8\"\nsecond_hop = \"int4\""), "int4");
  // A rule with a codec of its own takes nothing over from the defaults' codec.
  const Plan plan =
      plan_of("[defaults]\ncodec = \"int2\"\nsecond_hop = \"int8\"\n[[rule]]\nmatch = \"x\"\ncodec = \"int4\"");
  EXPECT_EQ(plan.buckets.at(0).stages.back().second_hop.to_string(), "int4");
}

TEST(Plan, WarmUpStagesFollowEachOther) {
  const Plan plan = plan_of(
      "[defaults]\ncodec = \"topk(1%)+int8\"\n"
      "warmup = [ { until_step = 10, codec = \"int8\" }, { until_step = 20, codec = \"topk(10%)+int8\" } ]");
  const auto codec = [&](std::uint64_t step) {
    return policy::stage_at(plan.buckets.at(0).stages, step).codec.to_string();
  };
  EXPECT_EQ(codec(0), "int8");
  EXPECT_EQ(codec(9), "int8");
  EXPECT_EQ(codec(10), "topk(410/4096)+int8");
  EXPECT_EQ(codec(19), "topk(410/4096)+int8");
  EXPECT_EQ(codec(20), "topk(41/4096)+int8");
  EXPECT_TRUE(policy::stage_at(plan.buckets[0].stages, 0).error_feedback) << "int8 would lose values that topk leaves";
  EXPECT_TRUE(policy::stage_at(plan.buckets[0].stages, 10).error_feedback);
}

TEST(Plan, SaysWhatAThinSelectionMeans) {
  const Plan thin = plan_of("[defaults]\ncodec = \"topk(0.001%)+int8\"");
  ASSERT_EQ(thin.notes.size(), 1U);
  EXPECT_THAT(thin.notes[0], HasSubstr("topk(1/4096)+int8 keeps one element of each tile"));
  const Plan all = plan_of("[defaults]\ncodec = \"topk(1)+int8\"");
  ASSERT_EQ(all.notes.size(), 1U);
  EXPECT_THAT(all.notes[0],
              HasSubstr("topk(4096/4096)+int8 keeps every element and sends their places, too; write int8"));
  const Plan blind = plan_of("[[rule]]\nmatch = \"x\"\ncodec = \"topk(1%)+int8\"\nerror_feedback = \"off\"");
  ASSERT_EQ(blind.warnings.size(), 1U);
  EXPECT_THAT(blind.warnings[0], HasSubstr("rule 1 (x): topk(41/4096)+int8 without error feedback loses"));
  EXPECT_THAT(blind.explain(), HasSubstr("without error feedback"));
}

TEST(Plan, DenseSendsUncompressedAndSaysSo) {
  const Plan plan = make_plan(Policy::uniform("int8", Algorithm::dense), {{"x", 4, DType::f32, 1}}, {});
  EXPECT_EQ(plan.buckets[0].codec, CodecSpec::parse("exact"));
  EXPECT_EQ(plan.groups[0].policy.codec, CodecSpec::parse("exact"));
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_THAT(plan.warnings[0], HasSubstr("codec int8 has no effect with the algorithm dense"));
}

struct Model {
  Policy policy;
  std::vector<TensorInfo> tensors;
};

Model random_model(std::mt19937& random) {
  Model model;
  const std::vector<const char*> codecs{"exact", "bf16", "fp16", "int8"};
  model.policy.bucket_bytes = std::uint64_t{4} << (random() % 24);
  if (random() % 3 == 0) {
    model.policy.small.reset();
  }
  for (std::size_t rules = random() % 3; rules > 0; --rules) {
    Policy::Rule rule{.policy = model.policy.defaults};
    rule.policy.codec = CodecSpec::parse(codecs[random() % codecs.size()]);
    rule.match.glob = std::string(1, static_cast<char>('a' + random() % 3)) + "*";
    model.policy.rules.push_back(rule);
  }
  const std::vector<DType> dtypes{DType::f32, DType::f32, DType::f16, DType::bf16, DType::f64};
  for (std::size_t tensors = random() % 40; tensors > 0; --tensors) {
    const std::uint64_t count = random() % 5 == 0 ? 0 : random() % (std::uint64_t{1} << (random() % 20));
    model.tensors.push_back(
        {std::string(1, static_cast<char>('a' + random() % 5)), count, dtypes[random() % dtypes.size()], 1});
  }
  return model;
}

void check_bucket(const Plan& plan, const Bucket& bucket, std::uint64_t bucket_bytes) {
  ASSERT_FALSE(bucket.parts.empty());
  std::uint64_t offset = 0;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < bucket.parts.size(); ++i) {
    const Bucket::Part& part = bucket.parts[i];
    const TensorPlan& tensor = plan.tensors[part.tensor];
    EXPECT_EQ(part.count, tensor.info.count);
    EXPECT_EQ(part.offset, offset);
    EXPECT_EQ(tensor.offset, offset);
    EXPECT_EQ(tensor.bucket, bucket.id);
    EXPECT_EQ(tensor.group, bucket.group);
    EXPECT_EQ(tensor.info.dtype, bucket.dtype);
    EXPECT_EQ(tensor.policy.codec, bucket.codec);
    EXPECT_TRUE(i == 0 || part.tensor < bucket.parts[i - 1].tensor) << "parts are in reverse order of add()";
    offset += part.count;
    filled += part.count > 0 ? 1 : 0;
  }
  EXPECT_EQ(bucket.count, offset);
  EXPECT_TRUE(bucket.count * 4 <= bucket_bytes || filled == 1) << "only a single larger tensor exceeds the size";
}

// A bucket is closed only because the next tensor of its group and dtype did not fit.
void check_cuts(const Plan& plan) {
  std::map<std::pair<std::size_t, DType>, std::vector<const Bucket*>> chains;
  for (const Bucket& bucket : plan.buckets) {
    chains[{bucket.group, bucket.dtype}].push_back(&bucket);
  }
  for (const auto& [key, chain] : chains) {
    for (std::size_t i = 1; i < chain.size(); ++i) {
      const std::uint64_t limit = i == 1 ? std::min(plan.bucket_bytes, kFirstBucketBytes) : plan.bucket_bytes;
      EXPECT_GT((chain[i - 1]->count + chain[i]->parts.front().count) * 4, limit);
    }
  }
}

TEST(Plan, InvariantsOfRandomModels) {
  const unsigned seed = 11;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  std::size_t most_buckets = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const Model model = random_model(random);
    const Plan plan = make_plan(model.policy, model.tensors, {.world_size = 3});
    ASSERT_EQ(plan.tensors.size(), model.tensors.size());
    std::set<std::size_t> seen;
    std::size_t last_completes = model.tensors.size();
    for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
      EXPECT_EQ(plan.buckets[i].id, i);
      check_bucket(plan, plan.buckets[i], model.policy.bucket_bytes);
      EXPECT_LT(plan.buckets[i].parts.back().tensor, last_completes)
          << "buckets start in the order in which they complete";
      last_completes = plan.buckets[i].parts.back().tensor;
      for (const Bucket::Part& part : plan.buckets[i].parts) {
        EXPECT_TRUE(seen.insert(part.tensor).second) << "a tensor in two buckets";
      }
    }
    EXPECT_EQ(seen.size(), model.tensors.size()) << "a tensor in no bucket";
    check_cuts(plan);
    std::uint64_t tensors = 0;
    for (const Group& group : plan.groups) {
      EXPECT_GT(group.tensors, 0U);
      tensors += group.tensors;
    }
    EXPECT_EQ(tensors, model.tensors.size());
    EXPECT_EQ(make_plan(model.policy, model.tensors, {.world_size = 3}).describe(), plan.describe());
    most_buckets = std::max(most_buckets, plan.buckets.size());
  }
  EXPECT_GT(most_buckets, 10U);
}

}  // namespace
}  // namespace gradwire::plan
