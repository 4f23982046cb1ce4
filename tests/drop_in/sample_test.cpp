// Tests a codec's sample of a job's values, which are not sent.
#include "drop_in/value_sample.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gradwire/codec_spec.hpp"

namespace gradwire::drop_in {
namespace {

TEST(CallSample, SeesWhatLiesBesideAnOutlier) {
  std::vector<float> values(1 << 16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 256 == 0 ? 100.0F : 1e-3F;
  }
  const SampledValues harmed = sample_values(CodecSpec::parse("int8"), view(values.data(), values.size()));
  EXPECT_GT(harmed.zeroed / harmed.elements, 0.99);
  EXPECT_NEAR(harmed.small_squared_error / harmed.small_squared_norm, 1, 1e-6);
  EXPECT_LT(harmed.squared_error / harmed.squared_norm, 1e-3) << "the error over all values does not show this";
  const SampledValues kept = sample_values(CodecSpec::parse("bf16"), view(values.data(), values.size()));
  EXPECT_EQ(kept.zeroed, 0);
  EXPECT_LT(kept.small_squared_error / kept.small_squared_norm, 1e-4);
}

TEST(CallSample, TakesTheBeginningOfLargeInputsAndLeavesThemAlone) {
  const std::vector<float> values(1 << 20, 0.25F);
  const SampledValues sampled = sample_values(CodecSpec::parse("int8"), view(values.data(), values.size()));
  EXPECT_EQ(sampled.bytes, static_cast<double>(kMostSampledBytes));
  EXPECT_NEAR(sampled.bytes / sampled.frame_bytes, 4, 0.2);
  EXPECT_EQ(values, std::vector<float>(values.size(), 0.25F));
  const std::vector<std::uint16_t> halves(1 << 20, 0x3c00);  // ones
  const SampledValues of_halves =
      sample_values(CodecSpec::parse("int8"), view(halves.data(), halves.size(), DType::f16));
  EXPECT_EQ(of_halves.bytes, static_cast<double>(kMostSampledBytes) / 2) << "decoded, they fill a buffer";
  EXPECT_LT(of_halves.squared_error / of_halves.squared_norm, 1e-4);
  EXPECT_EQ(sample_values(CodecSpec::exact(), view(values.data(), values.size())).samples, 0U);
  EXPECT_EQ(sample_values(CodecSpec::parse("int8"), ConstView()).samples, 0U);
}

TEST(CallSample, LeavesNanAndInfOut) {
  std::vector<float> values(8192, 1.0F);
  values[5000] = std::numeric_limits<float>::quiet_NaN();
  values[5001] = std::numeric_limits<float>::infinity();
  const SampledValues sampled = sample_values(CodecSpec::parse("int8"), view(values.data(), values.size()));
  EXPECT_TRUE(std::isfinite(sampled.squared_error) && std::isfinite(sampled.squared_norm));
}

}  // namespace
}  // namespace gradwire::drop_in
