// Tests the guard over dropped values: warm-up, run-away residuals, recovery.
#include "choice/guard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradwire::choice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The levels are dense, bf16, int8, int4 and topk.
const std::vector<std::vector<double>> kBits{{32, 16, 8.06, 4.06, 0.2}, {32, 16}};

Guard begun(GuardOptions options = {.hold = 200, .warmup = 50}) {
  Guard guard(options, kBits);
  guard.begin(0);
  return guard;
}

TEST(Guard, EightBitsAreTheLeastInWarmUpAndAfterAResume) {
  Guard guard = begun();
  EXPECT_EQ(guard.most(0, 0), 2U);
  EXPECT_EQ(guard.most(49, 0), 2U);
  EXPECT_EQ(guard.most(50, 0), 4U);
  EXPECT_EQ(guard.most(0, 1), 1U);
  guard.begin(1000);
  EXPECT_EQ(guard.most(1000, 0), 2U);
  EXPECT_EQ(guard.most(1050, 0), 4U);
}

TEST(Guard, TheBoundOfErrorFeedbackIsNoRunAway) {
  EXPECT_EQ(steady_residual(0), 0);
  EXPECT_NEAR(steady_residual(0.25), 1, 1e-12);
  EXPECT_TRUE(std::isinf(steady_residual(1)));
  Guard guard = begun();
  EXPECT_THAT(guard.observe(100, 0, 4, {.nmse = 0.88, .residual_ratio = steady_residual(0.88)}), IsEmpty());
  EXPECT_THAT(guard.observe(100, 0, 3, {.nmse = 0.009, .residual_ratio = 0.9}), IsEmpty()) << "below the gradient";
  EXPECT_EQ(guard.most(101, 0), 4U);
}

// Plants a divergence: with 4 bits the residual grows by a quarter at each look.
TEST(Guard, BacksOffAndRecovers) {
  Guard guard = begun();
  std::uint64_t step = 50;
  double ratio = 0.1;
  std::string why;
  for (; why.empty(); step += 50, ratio *= 1.25) {
    ASSERT_LT(ratio, 10) << "the divergence was never noticed";
    why = guard.observe(step, 0, 3, {.nmse = 0.01, .residual_ratio = ratio});
  }
  EXPECT_THAT(why, HasSubstr("times the gradient"));
  const std::uint64_t at = step - 50;
  EXPECT_EQ(guard.most(at + 1, 0), 2U);
  EXPECT_EQ(guard.most(at + 199, 0), 2U);
  EXPECT_EQ(guard.most(at + 200, 0), 4U) << "it is tried again";
  EXPECT_EQ(guard.most(at + 1, 1), 1U) << "other buckets go on";
  EXPECT_THAT(guard.observe(at + 200, 0, 3, {.nmse = 0.01, .residual_ratio = 9}), HasSubstr("times"));
  EXPECT_EQ(guard.most(at + 599, 0), 2U) << "held twice as long";
  EXPECT_EQ(guard.most(at + 600, 0), 4U);
}

TEST(Guard, NoContractionAndNoNumbers) {
  Guard guard = begun();
  EXPECT_THAT(guard.observe(100, 0, 4, {.nmse = 0.99, .residual_ratio = 0}), HasSubstr("drops 0.99"));
  EXPECT_EQ(guard.most(101, 0), 3U);
  EXPECT_THAT(guard.observe(101, 0, 3, {.nmse = std::nan(""), .residual_ratio = 0}), HasSubstr("drops"));
  EXPECT_EQ(guard.most(102, 0), 2U);
  EXPECT_THAT(guard.observe(102, 0, 2, {.nmse = 1e-4, .residual_ratio = std::nan("")}), HasSubstr("residual"));
  EXPECT_EQ(guard.most(103, 0), 1U);
  EXPECT_THAT(guard.observe(103, 0, 0, {.nmse = 5, .residual_ratio = 5}), IsEmpty()) << "dense drops nothing";
}

}  // namespace
}  // namespace gradwire::choice
