// Tests error feedback in a single encoding: nothing is lost, nothing is invented. It names no codec.
#include <gtest/gtest.h>

#include <cmath>

#include "codec_support.hpp"
#include "tests/support/distributions.hpp"

namespace gradwire::test {
namespace {

class CodecResidual : public ::testing::TestWithParam<Case> {
 protected:
  codec::Codec codec_ = GetParam().codec();
  bool f64_ = codec_.working() == codec::Working::f64;

  // Returns the encoded values: values + residual, rounded once in the working type.
  [[nodiscard]] Values sum(const Values& values, const std::vector<float>& residual) const {
    Values result = values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      result.set(i, f64_ ? values[i] + residual[i] : static_cast<double>(static_cast<float>(values[i]) + residual[i]));
    }
    return result;
  }
};

TEST_P(CodecResidual, IsSumMinusDecoded) {
  for (const std::size_t count : {1U, 33U, 256U, 257U, 4095U, 8192U + 65U}) {
    SCOPED_TRACE(count);
    const Values values(codec_.working(), gauss(count, 21));
    const std::vector<float> before = gauss(count, 22, 0.05);
    std::vector<float> after = before;
    const Frame frame = encode(codec_, values, &after);
    const Values p = sum(values, before);
    EXPECT_EQ(frame.bytes, encode(codec_, p).bytes) << "not the encoding of values + residual";
    const Values decoded = decode(codec_, frame, count);
    for (std::size_t i = 0; i < count; ++i) {
      const float expected =
          f64_ ? static_cast<float>(p[i] - decoded[i]) : static_cast<float>(p[i]) - static_cast<float>(decoded[i]);
      ASSERT_EQ(after[i], expected) << i;
    }
  }
}

TEST_P(CodecResidual, ZeroResidualChangesNoByte) {
  const Values values(codec_.working(), gauss(5000, 23));
  std::vector<float> residual(values.size(), 0.0F);
  EXPECT_EQ(encode(codec_, values, &residual).bytes, encode(codec_, values).bytes);
}

TEST_P(CodecResidual, StaysWhereTheBlockIsNotFinite) {
  constexpr std::size_t kCount = 2 * codec::kTileElements + 300;
  const std::vector<float> before = gauss(kCount, 24, 0.05);
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const std::size_t at : {std::size_t{5}, std::size_t{4500}, kCount - 1}) {
      Values values(codec_.working(), gauss(kCount, 25));
      values.set(at, bad);
      std::vector<float> after = before;
      const Values decoded = decode(codec_, encode(codec_, values, &after), kCount);
      EXPECT_EQ(after[at], before[at]);
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_TRUE(std::isfinite(after[i]));
        ASSERT_TRUE(std::isfinite(decoded[i]) || after[i] == before[i]) << i;
      }
    }
  }
}

TEST_P(CodecResidual, ValuesTooSmallForAScaleStayInIt) {
  constexpr std::size_t kCount = 700;
  Values values(codec_.working(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values.set(i, static_cast<double>(i % 50) * 1e-44);
  }
  std::vector<float> residual(kCount, 0.0F);
  const Values decoded = decode(codec_, encode(codec_, values, &residual), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(static_cast<float>(decoded[i] + residual[i]), static_cast<float>(values[i])) << i;
  }
}

// Mutations tried in the cores of sign, int4 and topk, each fails here and in IsSumMinusDecoded: the residual uses a
// scale that is 5% too large; the residual keeps value - decoded without what it held before.
// Sum of the inputs = sum of the decoded values + the residual, over many steps.
TEST_P(CodecResidual, NothingIsLostOverManySteps) {
  constexpr std::size_t kCount = 300;
  std::vector<float> residual(kCount, 0.0F);
  std::vector<double> in(kCount, 0.0);
  std::vector<double> out(kCount, 0.0);
  for (unsigned step = 0; step < 1000; ++step) {
    const Values values(codec_.working(), gauss(kCount, 100 + step));
    const Values decoded = decode(codec_, encode(codec_, values, &residual, false), kCount, nullptr, false);
    for (std::size_t i = 0; i < kCount; ++i) {
      in[i] += values[i];
      out[i] += decoded[i];
    }
  }
  double off = 0;
  double power = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double left = in[i] - out[i] - static_cast<double>(residual[i]);
    off += left * left;
    power += in[i] * in[i];
  }
  EXPECT_LE(std::sqrt(off / power), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, CodecResidual, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace gradwire::test
