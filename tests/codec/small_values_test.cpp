// Tests how codecs treat small values beside large ones.
#include "codec/small_values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace gradwire::codec {
namespace {

SmallValues found_by(const char* codec, const std::vector<float>& values) {
  return find_small_values(Codec(CodecSpec::parse(codec), DType::f32), values);
}

std::vector<float> beside_outliers(std::size_t count) {
  std::vector<float> values(count, 1e-3F);
  for (std::size_t i = 0; i < count; i += 256) {
    values[i] = 1000;
  }
  return values;
}

TEST(SmallValues, AnOutlierOfEachBlockTakesAllElseFromInt8) {
  const SmallValues found = found_by("int8", beside_outliers(65536));
  EXPECT_EQ(found.nonzero, 65536U);
  EXPECT_EQ(found.zeroed, 65280U);
  EXPECT_DOUBLE_EQ(found.small_nmse(), 1);
  EXPECT_TRUE(found.lost());
  EXPECT_FALSE(found_by("bf16", beside_outliers(65536)).lost());
}

TEST(SmallValues, OrdinaryGradientsLoseNone) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> heavy(3);
  std::vector<float> gauss(40000);
  std::vector<float> student(40000);
  for (std::size_t i = 0; i < gauss.size(); ++i) {
    gauss[i] = normal(random);
    student[i] = heavy(random);
  }
  for (const char* codec : {"int8", "fp8", "fp16", "bf16"}) {
    EXPECT_FALSE(found_by(codec, gauss).lost()) << codec;
    EXPECT_FALSE(found_by(codec, student).lost()) << codec;
  }
  EXPECT_LT(found_by("int8", gauss).zeroed_share(), 0.02);
  EXPECT_LT(found_by("int8", student).small_nmse(), 0.1);
}

TEST(SmallValues, ZerosAndWhatIsNotFiniteCountForNothing) {
  std::vector<float> values(10000, 0);
  EXPECT_EQ(found_by("int8", values).nonzero, 0U);
  EXPECT_EQ(found_by("int8", values).small_nmse(), 0);
  values = beside_outliers(8192);
  values[5] = NAN;
  EXPECT_EQ(found_by("int8", values).nonzero, 4096U) << "the other tile";
  EXPECT_EQ(found_by("exact", values).nonzero, 0U);
}

}  // namespace
}  // namespace gradwire::codec
