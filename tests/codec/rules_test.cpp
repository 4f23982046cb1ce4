// Tests the rule of each codec and its fixed numbers against arithmetic that is written down independently, in double.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>

#include "codec_support.hpp"
#include "kernels/elements.hpp"
#include "kernels/int8.hpp"

namespace gradwire::test {
namespace {

float from_bits(std::uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

std::uint32_t to_bits(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Returns whichever of `low` and `high`, neighbours in the target type, is nearer to x; ties go to the even bit
// pattern.
template <class Bits, class Decode>
Bits nearest(double x, Bits low, Bits high, Decode decode) {
  const double below = x - decode(low);
  const double above = decode(high) - x;
  return below < above || (below == above && low % 2 == 0) ? low : high;
}

TEST(Bf16Rule, RoundsToNearestEven) {
  std::mt19937 random(61);
  for (int round = 0; round < 300000; ++round) {
    std::uint32_t bits = random() & 0x7FFFFFFFU;
    bits = round % 3 == 0 ? (bits & 0xFFFF0000U) | 0x8000U : bits;  // makes ties
    const float x = from_bits(bits);
    if (!(x < from_bits(0x7F7F0000U))) {
      continue;
    }
    const auto low = static_cast<std::uint16_t>(bits >> 16);
    const auto expected = nearest(x, low, static_cast<std::uint16_t>(low + 1), [](std::uint16_t b) {
      return static_cast<double>(from_bits(std::uint32_t{b} << 16));
    });
    ASSERT_EQ(kernels::to_bf16(x), expected) << bits;
    ASSERT_EQ(kernels::to_bf16(-x), expected | 0x8000U);
  }
  EXPECT_EQ(kernels::to_bf16(FLT_MAX), 0x7F80U);  // beyond the largest finite bf16
  EXPECT_EQ(kernels::to_bf16(from_bits(0x7F7F7FFFU)), 0x7F7FU);
  EXPECT_EQ(kernels::to_bf16(-HUGE_VALF), 0xFF80U);
  EXPECT_EQ(kernels::to_bf16(from_bits(0xFF800001U)), 0x7FC0U);  // any NaN
}

TEST(F16, EveryValueReadsBack) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float x = kernels::from_f16(half);
    const int exponent = static_cast<int>((bits >> 10) & 31U);
    const double mantissa = bits & 1023U;
    const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(x), mantissa != 0);
      ASSERT_EQ(kernels::to_f16(x), mantissa != 0 ? 0x7E00U : bits);
      continue;
    }
    const double value =
        sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
    ASSERT_EQ(static_cast<double>(x), value) << bits;
    ASSERT_EQ(kernels::to_f16(x), bits);
  }
}

TEST(F16, RoundsToNearestEven) {
  for (std::uint32_t low = 0; low < 0x7BFFU; ++low) {
    const double a = kernels::from_f16(static_cast<std::uint16_t>(low));
    const double b = kernels::from_f16(static_cast<std::uint16_t>(low + 1));
    const auto middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(kernels::to_f16(middle), low + low % 2) << low;
    ASSERT_EQ(kernels::to_f16(std::nextafter(middle, 0.0F)), low);
    ASSERT_EQ(kernels::to_f16(std::nextafter(middle, 1e9F)), low + 1);
    ASSERT_EQ(kernels::to_f16(-middle), 0x8000U | (low + low % 2));
  }
  EXPECT_EQ(kernels::to_f16(65519.99F), 0x7BFFU);
  EXPECT_EQ(kernels::to_f16(65520.0F), 0x7C00U);
  EXPECT_EQ(kernels::to_f16(FLT_MAX), 0x7C00U);
  EXPECT_EQ(kernels::to_f16(1e-45F), 0U);
}

TEST(Scales, AreNormalOrZeroAndRoundedUp) {
  std::mt19937 random(62);
  for (int round = 0; round < 200000; ++round) {
    const float x = from_bits(random() % 0x7F800000U);
    const std::uint16_t bits = kernels::scale_round_up(x);
    const float scale = kernels::from_bf16(bits);
    ASSERT_TRUE(scale == 0.0F || std::isnormal(scale)) << x;
    if (scale == 0.0F) {
      ASSERT_LT(x, FLT_MIN);
    } else if (bits == 0x7F7FU) {
      ASSERT_GT(x, kernels::from_bf16(0x7F7EU));
    } else {
      ASSERT_GE(scale, x);
      ASSERT_TRUE(bits == 0x0080U || kernels::from_bf16(static_cast<std::uint16_t>(bits - 1)) < x) << x;
    }
  }
  EXPECT_EQ(kernels::scale_round_up(FLT_MAX), 0x7F7FU);
  EXPECT_EQ(kernels::scale_round_up(1.0F), 0x3F80U);
  EXPECT_EQ(kernels::scale_round_up(from_bits(0x3F800001U)), 0x3F81U);
  EXPECT_EQ(kernels::scale_power_of_two(to_bits(1.999F)), 0x3F80U);
  EXPECT_EQ(kernels::scale_power_of_two(to_bits(FLT_MAX)), 0x7F00U);
  EXPECT_EQ(kernels::scale_power_of_two(to_bits(1e-39F)), 0U);
}

struct Block {
  float scale;
  std::vector<int> codes;
};

// One short tile of int8.
Block int8_block(const std::vector<float>& values) {
  const auto count = static_cast<std::uint32_t>(values.size());
  std::vector<std::uint8_t> out(kernels::Int8::tile_bytes(0, count));
  EXPECT_FALSE(kernels::Int8::encode({}, values.data(), nullptr, count, out.data()));
  Block block{kernels::from_bf16(kernels::load<std::uint16_t>(out.data(), 0)), {}};
  for (std::uint32_t i = 0; i < count; ++i) {
    block.codes.push_back(static_cast<std::int8_t>(out[2 + i]));
  }
  return block;
}

TEST(Int8Rule, ScaleCoversTheLargestAndCodesAreNearest) {
  std::mt19937 random(63);
  for (int round = 0; round < 3000; ++round) {
    const double magnitude = std::pow(10.0, static_cast<double>(random() % 70) - 34);
    std::vector<float> values = gauss(1 + random() % 256, random(), magnitude);
    const Block block = int8_block(values);
    double absmax = 0;
    for (const float x : values) {
      absmax = std::max(absmax, std::abs(static_cast<double>(x)));
    }
    ASSERT_GE(block.scale * 127.0, absmax * (1 - 1e-6));       // nothing is clipped
    ASSERT_LE(block.scale * 127.0, absmax * (1 + 1.0 / 127));  // and no bf16 step is wasted
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double exact = values[i] / static_cast<double>(block.scale);
      ASSERT_LE(std::abs(block.codes[i] - exact), 0.5 + 1e-4) << values[i];
    }
  }
}

TEST(Int8Rule, TiesGoToEven) {
  // absmax 127 makes S exactly 1.
  const Block block = int8_block({127.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 126.5F, -126.5F});
  EXPECT_EQ(block.scale, 1.0F);
  EXPECT_EQ(block.codes, (std::vector<int>{127, 0, 2, 2, 0, -2, -2, 126, -126}));
}

TEST(Int8Rule, TinyBlocksHaveScaleZero) {
  const Block tiny = int8_block({1e-36F, -1e-37F});  // below 127 * 2^-126
  EXPECT_EQ(tiny.scale, 0.0F);
  EXPECT_EQ(tiny.codes, (std::vector<int>{0, 0}));
  const Block small = int8_block({1.6e-36F, -8e-37F});
  EXPECT_TRUE(std::isnormal(small.scale));
}

TEST(Int8Rule, LargestValuesDoNotOverflow) {
  const Block block = int8_block({FLT_MAX, -FLT_MAX, 0.0F});
  EXPECT_TRUE(std::isfinite(block.scale));
  EXPECT_GE(block.codes[0], 126);
  EXPECT_EQ(block.codes[1], -block.codes[0]);
  EXPECT_TRUE(std::isfinite(block.scale * static_cast<float>(block.codes[0])));
}

TEST(Fp16Rule, KeepsElevenBitsAtAnyMagnitude) {
  const codec::Codec codec(CodecSpec::parse("fp16"), DType::f32);
  for (const double magnitude : {2e-38, 1e-30, 1e-8, 1.0, 1e8, 1e30, 1e38}) {
    std::vector<float> values(256);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(magnitude * (1 + static_cast<double>(i) / 256));
    }
    const Values decoded = decode(codec, encode(codec, Values(codec.working(), values)), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(decoded[i], values[i], std::abs(values[i]) * 0x1p-11) << magnitude;
    }
  }
}

// The block is too small for a scale: codes are 0 whatever the signs, on every instruction set; the residual keeps all
// values.
TEST(BlockRules, AZeroScaleGivesZeroCodesAndLeavesAllToTheResidual) {
  for (const char* name : {"fp16", "int8", "fp8", "int4", "int2", "sign"}) {
    const codec::Codec codec(CodecSpec::parse(name), DType::f32);
    std::vector<float> values(512, -1e-40F);
    values[3] = -0.0F;
    std::vector<float> residual(values.size(), -2e-40F);
    std::vector<std::byte> frame(codec.frame_bytes(values.size()));
    codec::FrameWriter writer(codec, {.count = 512}, false, frame);
    writer.write(values.data(), residual.data(), 512);
    EXPECT_FALSE(writer.finish());
    for (std::size_t i = 32; i < frame.size(); ++i) {
      ASSERT_EQ(frame[i], std::byte{0}) << name << " byte " << i;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(residual[i], values[i] + -2e-40F) << name << " element " << i;
    }
  }
}

// A block with NaN or Inf decodes to NaN, and its neighbours are untouched. bf16 limits it to one element.
TEST(Nonfinite, ReachAsFarAsStated) {
  struct Row {
    const char* codec;
    std::size_t reach;
  };
  for (const Row& row : {Row{"exact", 1}, Row{"bf16", 1}, Row{"fp16", 256}, Row{"int8", 256}, Row{"fp8", 128},
                         Row{"int4", 256}, Row{"int2", 256}, Row{"sign", 256}}) {
    const codec::Codec codec(CodecSpec::parse(row.codec), DType::f32);
    std::vector<float> values = gauss(2048, 64);
    values[700] = HUGE_VALF;
    const Values decoded = decode(codec, encode(codec, Values(codec.working(), values)), values.size());
    const std::size_t first = 700 / row.reach * row.reach;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::isfinite(decoded[i]), i < first || i >= first + row.reach) << row.codec << ' ' << i;
      ASSERT_EQ(std::isnan(decoded[i]), row.reach > 1 && !std::isfinite(decoded[i]));
    }
  }
}

}  // namespace
}  // namespace gradwire::test
