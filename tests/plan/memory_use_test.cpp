#include "plan/memory_use.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gradwire::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kCount = 1U << 20;
constexpr std::uint64_t kBytes = kCount * sizeof(float);

Plan plan_with(const std::string& policy, const PlanOptions& options) {
  return make_plan(Policy::parse("version = 1\n" + policy), {{"weight", kCount, DType::f32, 2, {}, {}, {}, 1}},
                   options);
}

TEST(MemoryUse, CountsResidualsOfEveryPurpose) {
  const Plan plan = plan_with("[defaults]\ncodec = \"int4\"\n", {.world_size = 4});
  const MemoryUse use = memory_of(plan);
  EXPECT_EQ(use.gradients, kBytes);
  EXPECT_EQ(use.local, kBytes);
  EXPECT_EQ(use.summed, kBytes / 4);
  EXPECT_EQ(use.second, 0U);
  EXPECT_EQ(use.copies, 0U);
  EXPECT_EQ(use.session(), use.local + use.summed + use.frames);
  const MemoryUse undoable =
      memory_of(plan_with("[defaults]\ncodec = \"int4\"\n", {.world_size = 4, .undoable = true}));
  EXPECT_EQ(undoable.second, kBytes + kBytes / 4);
  EXPECT_EQ(memory_of(plan_with("[defaults]\ncodec = \"int4\"\n", {.world_size = 1})).session(), 0U);
  EXPECT_EQ(memory_of(plan_with("[defaults]\ncodec = \"int8\"\n", {.world_size = 4})).local, 0U);
}

// Both buffers of a session that can undo a step are as narrow as the residuals.
TEST(MemoryUse, CountsResidualsInTheirDtype) {
  const std::string rule = "[[rule]]\nmatch = \"weight\"\ncodec = \"int4\"\nresiduals = { dtype = \"bf16\" }\n";
  const Plan plan = plan_with(rule, {.world_size = 4, .undoable = true});
  const MemoryUse use = memory_of(plan);
  EXPECT_EQ(use.local, kBytes / 2);
  EXPECT_EQ(use.summed, kBytes / 8);
  EXPECT_EQ(use.second, kBytes / 2 + kBytes / 8);
  EXPECT_THAT(plan.explain(), HasSubstr("residuals of its own values      2MiB\n"));
  EXPECT_THAT(plan.explain(), Not(HasSubstr("bf16")));
}

TEST(MemoryUse, CountsBlocksOfInt8OfEveryTensor) {
  const std::string rule = "[defaults]\ncodec = \"int4\"\nsmall = \"off\"\nresiduals = { dtype = \"int8\" }\n";
  EXPECT_EQ(memory_of(plan_with(rule, {.world_size = 4})).local, kCount / 64 * 65);
  EXPECT_THAT(plan_with(rule, {.world_size = 4}).explain(), Not(HasSubstr("dtype = ")));
  // Tensors are fused in reverse order: 70 elements in two blocks, then 100, which begin in the second block, in two.
  const Plan fused = make_plan(Policy::parse("version = 1\n" + rule),
                               {{"a", 100, DType::f32, 2}, {"b", 70, DType::f32, 2}}, {.world_size = 2});
  ASSERT_EQ(fused.buckets.size(), 1U);
  EXPECT_EQ(memory_of(fused).local, (2 + 2) * 65U);
}

// Encrypted copies are as large as the frames and their seals, in whole pages, and follow in_flight.
TEST(MemoryUse, CountsEncryptedCopies) {
  const std::string small = "[bucket]\nin_flight = \"64KiB\"\nchunk = \"16KiB\"\n[defaults]\ncodec = \"exact\"\n";
  for (const std::string& policy : {std::string("[defaults]\ncodec = \"int8\"\n"), small}) {
    const MemoryUse plain = memory_of(plan_with(policy, {.world_size = 4}));
    const Plan plan = plan_with(policy, {.world_size = 4, .sealed = true});
    const MemoryUse sealed = memory_of(plan);
    EXPECT_EQ(plain.sealed, 0U);
    EXPECT_EQ(sealed.frames, plain.frames);
    EXPECT_GE(sealed.sealed, sealed.frames);
    EXPECT_LE(sealed.sealed, 2 * sealed.frames);
    EXPECT_EQ(sealed.session(), plain.session() + sealed.sealed);
    EXPECT_THAT(plan.explain(), HasSubstr("encrypted copies of frames, at most"));
  }
  EXPECT_EQ(memory_of(plan_with(small, {.world_size = 1, .sealed = true})).sealed, 0U);
  EXPECT_LT(memory_of(plan_with(small, {.world_size = 4, .sealed = true})).sealed,
            memory_of(plan_with("[defaults]\ncodec = \"exact\"\n", {.world_size = 4, .sealed = true})).sealed);
}

// A bucket that auto may send as int4 may keep residuals from the first such step on.
TEST(MemoryUse, CountsTheMostOfAllLevelsAndStages) {
  const PlanOptions options{.world_size = 2};
  EXPECT_EQ(memory_of(plan_with("[defaults]\ncodec = \"auto\"\nallow = [\"int8\", \"int4\"]\n", options)).local,
            kBytes);
  EXPECT_EQ(memory_of(plan_with("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\", \"int8\"]\n", options)).local, 0U);
  EXPECT_EQ(
      memory_of(plan_with("[defaults]\ncodec = \"int4\"\nwarmup = [ { until_step = 9, codec = \"int8\" } ]\n", options))
          .local,
      kBytes);
}

TEST(MemoryUse, FindsTheLastLevelThatFits) {
  Plan plan =
      plan_with("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\", \"int8\", \"int4\", \"int2\"]\n", {.world_size = 4});
  const auto level_within = [&](std::uint64_t residuals) {
    return level_that_fits(plan, 0, [=](const MemoryUse& use) { return use.residuals() <= residuals; });
  };
  EXPECT_EQ(level_within(2 * kBytes), 4U);
  EXPECT_EQ(level_within(kBytes), 2U) << "int4 and int2 need more";
  EXPECT_EQ(level_that_fits(plan, 0, [](const MemoryUse&) { return false; }), 0U);
  EXPECT_EQ(memory_of(plan, 0, 2).residuals(), 0U);
  EXPECT_EQ(codecs_above(plan, 2), "int4, int2");
  EXPECT_EQ(codecs_above(plan, 4), "");
  EXPECT_GT(memory_of(plan).residuals(), kBytes);
  plan.most_level = 2;
  EXPECT_EQ(memory_of(plan).residuals(), 0U);
  EXPECT_EQ(level_within(2 * kBytes), 2U);
  EXPECT_EQ(codecs_above(plan, 2), "");
  EXPECT_EQ(level_that_fits(plan_with("[defaults]\ncodec = \"int4\"\n", {.world_size = 4}), 0,
                            [](const MemoryUse&) { return false; }),
            std::nullopt);
}

TEST(MemoryUse, CountsCopiesOfSyncModes) {
  const PlanOptions options{.world_size = 2};
  EXPECT_EQ(memory_of(plan_with("[defaults]\nsync = { async = true, staleness = 2 }\n", options)).copies, 3 * kBytes);
  EXPECT_EQ(
      memory_of(plan_with("[defaults]\nsync = { async = true, staleness = 2 }\n", {.world_size = 2, .undoable = true}))
          .copies,
      6 * kBytes);
  EXPECT_EQ(memory_of(plan_with("[defaults]\nsync = { every = 16, outer = {} }\n", options)).copies, 3 * kBytes);
}

// A copy is encoded from a snapshot and waits to be sent; of each rank it keeps one for, a rank holds the last copy and
// the next one while that grows. Packing may save nothing. Mutation tried: kept copies are not counted.
TEST(MemoryUse, CountsCopiesForOtherRanks) {
  const auto with = [](const std::string& copies, PlanOptions options, int rank = 0, const std::string& more = "") {
    options.undoable = true;
    return memory_of(
        plan_with("[defaults]\ncodec = \"int4\"\nsecond_hop = \"exact\"\n" + more + "[elastic]\n" + copies, options),
        rank);
  };
  const std::string exact = "replicate = \"1 step\"\nreplicate_as = \"exact\"\n";
  const PlanOptions two{.world_size = 2};
  EXPECT_EQ(with("", two).replicas, 0U);
  EXPECT_EQ(with(exact, {.world_size = 1}).replicas, 0U);
  EXPECT_EQ(with(exact, two).replicas, (1 + 2 + 3) * kBytes);
  EXPECT_EQ(with("replicate = \"9 steps\"\n", two).replicas, kBytes + (2 + 3) * kBytes / 2);
  EXPECT_EQ(with(exact, two, 0, "residuals = { dtype = \"bf16\" }\n").replicas, (1 + 2 + 3) * kBytes / 2);
  EXPECT_EQ(with(exact, two, 0, "residuals = { store = \"file:/scratch\", memory = \"1MiB\" }\n").replicas,
            (2 + 3) * kBytes)
      << "the snapshot lies in the file";
  EXPECT_EQ(with(exact, two).session(), with("", two).session() + 6 * kBytes);
  // The one rank of the second node keeps the copies of all others.
  const PlanOptions uneven{.world_size = 3, .nodes = {0, 0, 1}};
  EXPECT_EQ(with(exact, uneven, 2, "algorithm = \"two_shot\"\n").replicas, (1 + 2 + 2 * 3) * kBytes);
  EXPECT_EQ(with(exact, uneven, 1, "algorithm = \"two_shot\"\n").replicas, (1 + 2) * kBytes);
}

TEST(MemoryUse, FramesStayWithinTheirBound) {
  const std::string small = "[bucket]\nin_flight = \"256KiB\"\n";
  const MemoryUse bound =
      memory_of(plan_with(small + "[defaults]\ncodec = \"exact\"\nalgorithm = \"two_shot\"\n", {.world_size = 2}));
  const MemoryUse free =
      memory_of(plan_with("[bucket]\nin_flight = \"1GiB\"\n[defaults]\ncodec = \"exact\"\n"
                          "algorithm = \"two_shot\"\n",
                          {.world_size = 2}));
  EXPECT_LT(bound.frames, free.frames);
  EXPECT_GE(free.frames, kBytes) << "all that travels may be under way at once";
  EXPECT_LE(free.frames, 3 * kBytes);
}

// A native sum copies its bucket whole, where frames of chunks take less. Mutation tried: native sums are not counted.
TEST(MemoryUse, CountsTheCopyOfANativeSum) {
  const std::string dense = "[bucket]\nin_flight = \"256KiB\"\n[defaults]\nalgorithm = \"dense\"\n";
  const auto frames = [](const std::string& policy, const PlanOptions& options) {
    return memory_of(plan_with(policy, options)).frames;
  };
  const PlanOptions one_node{.world_size = 2, .nodes = {0, 0}, .native_sums = true};
  EXPECT_LT(frames(dense, {.world_size = 2}), kBytes);
  EXPECT_EQ(frames(dense, one_node), kBytes);
  EXPECT_LT(frames(dense, {.world_size = 2, .nodes = {0, 1}, .native_sums = true}), kBytes)
      << "only a sum in the call is that large";
  EXPECT_EQ(frames("deterministic = true\n" + dense, one_node), frames(dense, {.world_size = 2}));
  // Frames of other buckets are under way beside the copy.
  const Policy mixed = Policy::parse("version = 1\n" + dense +
                                     "[[rule]]\nmatch = \"other\"\ncodec = \"int8\"\n"
                                     "algorithm = \"two_shot\"\n");
  const auto both = [&](bool native_sums) {
    return memory_of(make_plan(mixed, {{"weight", kCount, DType::f32, 1}, {"other", kCount, DType::f32, 1}},
                               {.world_size = 2, .nodes = {0, 0}, .native_sums = native_sums}))
        .frames;
  };
  EXPECT_GT(both(true), kBytes);
  EXPECT_GT(both(true), both(false));
  EXPECT_LT(both(true), 2 * kBytes);
  EXPECT_THAT(plan_with(dense, one_node).explain(),
              HasSubstr("frames, or buckets that the transport sums, at most   4MiB\n"));
}

TEST(MemoryUse, SaysWhatTheNextSmallerChoicesSave) {
  const std::string text = plan_with("[[rule]]\nmatch = \"weight\"\ncodec = \"int4\"\n", {.world_size = 4}).explain();
  EXPECT_THAT(text, HasSubstr("residuals of its own values      4MiB\n"));
  EXPECT_THAT(text, HasSubstr("residuals of its sums            1MiB\n"));
  EXPECT_THAT(text, HasSubstr("rule 1 (weight): int8 without error feedback saves 5MiB\n"));
  EXPECT_THAT(text, HasSubstr("rule 1 (weight): residuals = { dtype = \"bf16\" } saves 2.5MiB\n"));
  EXPECT_THAT(text, HasSubstr("rule 1 (weight): residuals = { dtype = \"int8\" } saves 3.73MiB\n"));
  EXPECT_THAT(plan_with("[defaults]\ncodec = \"int8\"\n", {.world_size = 4}).explain(),
              Not(HasSubstr("error feedback saves")));
  EXPECT_THAT(plan_with("[defaults]\ncodec = \"int4\"\n", {.world_size = 1}).explain(), Not(HasSubstr("memory of")));
}

}  // namespace
}  // namespace gradwire::plan
