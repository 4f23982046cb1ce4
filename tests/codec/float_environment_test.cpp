// Callers built with -ffast-math flush denormals, and others round differently: neither may change a byte or a value,
// and each finds its own setting again afterwards.
#include "codec/float_environment.hpp"

#include <gtest/gtest.h>

#include <cfenv>

#include "codec_support.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace gradwire::test {
namespace {

constexpr unsigned kFlushToZero = 0x8000;
constexpr unsigned kDenormalsAreZero = 0x0040;
constexpr unsigned kRoundDown = 0x2000;

class CallerSetting {
 public:
  explicit CallerSetting(unsigned bits) : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80 | bits); }
  ~CallerSetting() { _mm_setcsr(saved_); }
  CallerSetting(const CallerSetting&) = delete;
  CallerSetting& operator=(const CallerSetting&) = delete;

 private:
  unsigned saved_;
};

class FloatEnvironments : public ::testing::TestWithParam<Case> {};

TEST_P(FloatEnvironments, CallersSettingChangesNothingAndIsRestored) {
  const codec::Codec codec = GetParam().codec();
  constexpr std::uint32_t kCount = 4096;
  // Values are normal, denormal and in between, so that values, scales, products and residuals all become denormals.
  std::vector<float> mixed = gauss(kCount, 51, 1e-3);
  for (std::size_t i = 0; i < kCount; ++i) {
    mixed[i] *= i / 256 % 4 == 0 ? 1.0F : (i / 256 % 4 == 1 ? 1e-36F : (i / 256 % 4 == 2 ? 1e-33F : 1e-38F));
  }
  const Values values(codec.working(), mixed);
  const std::vector<float> before = gauss(kCount, 52, 1e-38);
  std::vector<float> expected_residual = before;
  const Frame expected = encode(codec, values, &expected_residual);
  const Values onto(codec.working(), before);
  const Values expected_values = decode(codec, expected, kCount);
  const Values expected_sum = decode(codec, expected, kCount, &onto);

  std::vector<std::byte> frame(codec.frame_bytes(kCount));
  std::vector<float> residual = before;
  Values read(codec.working(), kCount);
  Values sum = onto;
  {
    const CallerSetting setting(kFlushToZero | kDenormalsAreZero | kRoundDown);
    const unsigned callers = _mm_getcsr();
    codec::FrameWriter writer(codec, info_for(kCount), true, frame);
    writer.write(values.at(0), residual.data(), kCount);
    EXPECT_EQ(_mm_getcsr(), callers);
    writer.finish();
    codec::FrameReader reader(codec, info_for(kCount), true, frame, 0);
    reader.read(read.at(0), kCount);
    EXPECT_EQ(_mm_getcsr(), callers);
    codec::FrameReader again(codec, info_for(kCount), true, frame, 0);
    again.add(sum.at(0), kCount);
    EXPECT_EQ(_mm_getcsr(), callers);
  }
  EXPECT_EQ(frame, expected.bytes);
  EXPECT_EQ(residual, expected_residual);
  EXPECT_TRUE(read.same(expected_values));
  EXPECT_TRUE(sum.same(expected_sum));
}

INSTANTIATE_TEST_SUITE_P(All, FloatEnvironments, ::testing::ValuesIn(all_cases()), case_name);

TEST(FloatEnvironment, Arithmetic) {
  const float tiny = 0x1p-130F;
  float sum = tiny;
  float product = 0;
  float quotient = tiny;
  unsigned after = 0;
  const CallerSetting setting(kFlushToZero | kDenormalsAreZero);
  const unsigned callers = _mm_getcsr();
  codec::add(codec::Working::f32, &sum, &tiny, 1);
  codec::multiply(codec::Working::f32, &tiny, 0.5, &product, 1);
  codec::divide(codec::Working::f32, &quotient, 2.0, 1);
  after = _mm_getcsr();
  _mm_setcsr(0x1F80);
  EXPECT_EQ(after, callers);
  EXPECT_EQ(sum, 0x1p-129F);
  EXPECT_EQ(product, 0x1p-131F);
  EXPECT_EQ(quotient, 0x1p-131F);
}

TEST(FloatEnvironment, TrapsOfTheCallerDoNotFire) {
  const codec::Codec codec(CodecSpec::parse("bf16"), DType::f32);
  const Values values(codec.working(), gauss(100, 53));
  feclearexcept(FE_ALL_EXCEPT);
  feenableexcept(FE_INEXACT | FE_UNDERFLOW);
  std::vector<std::byte> frame(codec.frame_bytes(100));
  codec::FrameWriter writer(codec, info_for(100), false, frame);
  std::vector<float> residual(100, 1e-40F);
  writer.write(values.at(0), residual.data(), 100);
  fedisableexcept(FE_ALL_EXCEPT);
  EXPECT_FALSE(writer.finish());
}

}  // namespace
}  // namespace gradwire::test
#endif
