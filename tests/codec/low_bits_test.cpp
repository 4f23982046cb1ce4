// Tests the rules of fp8 and sign, of selected values below eight bits, and of the sums under them, against arithmetic
// that is written down independently, in double.
#include <gtest/gtest.h>

#include <array>
#include <cfloat>
#include <cmath>

#include "codec_support.hpp"
#include "kernels/fp8.hpp"
#include "kernels/int2.hpp"
#include "kernels/int4.hpp"
#include "kernels/sign.hpp"

namespace gradwire::test {
namespace {

// Returns the number of a code of e4m3, from its fields.
double e4m3_value(unsigned code) {
  const int exponent = static_cast<int>((code >> 3) & 15U);
  const double mantissa = code & 7U;
  const double sign = (code & 0x80U) != 0 ? -1 : 1;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
}

float scale_at(const std::vector<std::uint8_t>& payload, std::uint32_t block) {
  return kernels::from_bf16(kernels::load<std::uint16_t>(payload.data(), block));
}

// One short tile, or a run of selected values.
template <class Core>
std::vector<std::uint8_t> tile_of(const std::vector<float>& values) {
  const auto count = static_cast<std::uint32_t>(values.size());
  std::vector<std::uint8_t> out(Core::tile_bytes(0, count));
  EXPECT_FALSE(Core::encode({}, values.data(), nullptr, count, out.data()));
  return out;
}
template <class Selected>
std::vector<std::uint8_t> selected_of(const std::vector<float>& values) {
  const auto count = static_cast<std::uint32_t>(values.size());
  std::vector<std::uint8_t> out(Selected::bytes(count));
  EXPECT_FALSE(Selected::encode(values.data(), count, out.data()));
  return out;
}
template <class Selected>
std::vector<float> read_selected(const std::vector<std::uint8_t>& in, std::size_t count) {
  std::vector<float> values(count);
  Selected::decode(in.data(), static_cast<std::uint32_t>(count), values.data());
  return values;
}

// Returns magnitudes over the whole range.
std::vector<float> random_values(std::mt19937& random) {
  const double magnitude = std::pow(10.0, static_cast<double>(random() % 70) - 33);
  return gauss(1 + random() % 256, random(), magnitude);
}

double largest(const std::vector<float>& values) {
  double absmax = 0;
  for (const float x : values) {
    absmax = std::max(absmax, std::abs(static_cast<double>(x)));
  }
  return absmax;
}

double mean_magnitude(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) {
    sum += std::abs(static_cast<double>(x));
  }
  return sum / static_cast<double>(values.size());
}

TEST(E4m3, EveryCodeReadsBack) {
  for (unsigned code = 0; code < 256; ++code) {
    const float x = kernels::from_e4m3(static_cast<std::uint8_t>(code));
    if ((code & 0x7FU) == 0x7FU) {
      ASSERT_TRUE(std::isnan(x));
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), e4m3_value(code)) << code;
    ASSERT_EQ(kernels::to_e4m3(x), code);
  }
}

TEST(E4m3, RoundsToNearestEven) {
  for (unsigned low = 0; low < 0x7EU; ++low) {
    const auto middle = static_cast<float>((e4m3_value(low) + e4m3_value(low + 1)) / 2);
    ASSERT_EQ(kernels::to_e4m3(middle), low + low % 2) << low;
    ASSERT_EQ(kernels::to_e4m3(std::nextafter(middle, 0.0F)), low);
    ASSERT_EQ(kernels::to_e4m3(std::nextafter(middle, 1e9F)), low + 1);
    ASSERT_EQ(kernels::to_e4m3(-middle), 0x80U | (low + low % 2));
  }
  EXPECT_EQ(kernels::to_e4m3(463.9F), 0x7EU);
  EXPECT_EQ(kernels::to_e4m3(1e-45F), 0U);
}

TEST(Fp8Rule, ScaleCoversTheLargestAndCodesAreNearest) {
  std::mt19937 random(201);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<float> values = random_values(random);
    const auto tile = tile_of<kernels::Fp8>(values);
    const std::size_t codes = (values.size() + 127) / 128 * 2;
    for (std::size_t first = 0; first < values.size(); first += 128) {
      const std::size_t end = std::min(values.size(), first + 128);
      const double scale = scale_at(tile, static_cast<std::uint32_t>(first / 128));
      const double absmax =
          largest({values.begin() + static_cast<long>(first), values.begin() + static_cast<long>(end)});
      ASSERT_GE(scale * 448, absmax * (1 - 1e-6));
      ASSERT_LE(scale * 448, absmax * (1 + 1.0 / 127));
      for (std::size_t i = first; i < end; ++i) {
        const unsigned code = tile[codes + i];
        ASSERT_NE(code & 0x7FU, 0x7FU);
        const double x = std::abs(values[i] / scale);
        const double error = std::abs(std::abs(e4m3_value(code)) - x);
        ASSERT_LE(error, std::max(0x1p-10, std::ldexp(1.0, std::ilogb(x) - 4)) * (1 + 1e-5)) << x;
        ASSERT_EQ((code & 0x80U) != 0, std::signbit(values[i]));
      }
    }
  }
}

TEST(Fp8Rule, LargestValuesDoNotOverflow) {
  const auto tile = tile_of<kernels::Fp8>({FLT_MAX, -FLT_MAX, 0.0F});
  EXPECT_EQ(tile[2], 0x7EU);
  EXPECT_TRUE(std::isfinite(448.0F * scale_at(tile, 0)));
}

// Element i is added to partial sum i mod 32, then a tree follows: 2^24 + 1 loses the 1, so any other order shows.
TEST(OrderedSum, HasTheOrderOfTheFormat) {
  std::mt19937 random(202);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> values = gauss(1 + random() % 300, random());
    kernels::OrderedSum sum;
    std::array<float, 32> partial{};
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      sum.add(i, values[i]);
      partial[i % 32] += values[i];
    }
    for (const std::size_t stride : {16U, 8U, 4U, 2U, 1U}) {
      for (std::size_t i = 0; i < stride; ++i) {
        partial[i] += partial[i + stride];
      }
    }
    ASSERT_EQ(sum.total(), partial[0]);
  }
  kernels::OrderedSum sum;
  sum.add(0, 0x1p24F);
  sum.add(32, 1.0F);
  sum.add(1, 1.0F);
  sum.add(17, 1.0F);
  EXPECT_EQ(sum.total(), 0x1p24F + 2.0F);
}

TEST(Scales, NearestIsEightBitsAndNormalOrZero) {
  std::mt19937 random(203);
  for (int round = 0; round < 100000; ++round) {
    const auto mean =
        static_cast<float>(std::ldexp(1.0 + random() % 0x800000 * 0x1p-23, static_cast<int>(random() % 8) - 6));
    const std::uint32_t absmax = 0x00800000U + random() % 0x7F000000U;
    const int exponent = static_cast<int>(absmax >> 23) - 127;
    int e = 0;
    const double fraction = std::frexp(static_cast<double>(mean), &e);                    // in [0.5, 1)
    const double rounded = std::ldexp(std::nearbyint(fraction * 256), e - 8 + exponent);  // ties to even
    const double expected = rounded < FLT_MIN ? 0 : std::min<double>(rounded, kernels::from_bf16(0x7F7F));
    ASSERT_EQ(static_cast<double>(kernels::from_bf16(kernels::scale_nearest(mean, absmax))), expected);
    ASSERT_EQ(std::ldexp(static_cast<double>(kernels::inverse_power_of_two(absmax)), exponent), 1.0);
  }
  EXPECT_EQ(kernels::scale_nearest(0.0F, 0x7F000000U), 0);
}

// Mutations tried: the mean is over 256 although a block is shorter; the root of the mean square is used.
TEST(SignRule, ScaleIsTheMeanMagnitudeAndBitsAreTheSigns) {
  std::mt19937 random(204);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<float> values = random_values(random);
    const auto tile = tile_of<kernels::Sign>(values);
    const double mean = mean_magnitude(values);
    ASSERT_NEAR(scale_at(tile, 0), mean, mean * (0x1p-8 + 1e-5));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ((tile[2 + i / 8] >> (i % 8)) & 1, std::signbit(values[i]) ? 1 : 0) << i;
    }
  }
  const auto extreme = tile_of<kernels::Sign>({FLT_MAX, -FLT_MAX});
  EXPECT_EQ(scale_at(extreme, 0), kernels::from_bf16(0x7F7F));
  const auto tiny = tile_of<kernels::Sign>({-1e-39F, -2e-39F});
  EXPECT_EQ(tiny, std::vector<std::uint8_t>(16, 0));
}

TEST(SignRule, BlocksOfATileLieApart) {
  std::vector<float> values(600);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = (i % 3 == 0 ? -1.0F : 1.0F) * static_cast<float>(1 + i / 256);
  }
  const auto tile = tile_of<kernels::Sign>(values);
  for (std::uint32_t block = 0; block < 3; ++block) {
    EXPECT_EQ(scale_at(tile, block), static_cast<float>(1 + block));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ((tile[6 + i / 8] >> (i % 8)) & 1, i % 3 == 0 ? 1 : 0) << i;
  }
}

TEST(SelectedValues, NibblesAreSixteenEvenLevels) {
  std::mt19937 random(205);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<float> values = random_values(random);
    const auto in = selected_of<kernels::SelectedNibbles>(values);
    ASSERT_EQ(in.size(), 2 + (values.size() + 1) / 2);
    const double scale = scale_at(in, 0);
    ASSERT_GE(scale * 15, largest(values) * (1 - 1e-6));
    ASSERT_LE(scale * 15, largest(values) * (1 + 1.0 / 127));
    const auto decoded = read_selected<kernels::SelectedNibbles>(in, values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int code = (in[2 + i / 2] >> (i % 2 * 4)) & 15;
      ASSERT_EQ(decoded[i], static_cast<float>((2 * code - 15) * scale));
      ASSERT_LE(std::abs(decoded[i] - static_cast<double>(values[i])), scale * (1 + 1e-5));
    }
    ASSERT_TRUE(values.size() % 2 == 0 || in.back() < 16);
  }
  const auto decoded =
      read_selected<kernels::SelectedNibbles>(selected_of<kernels::SelectedNibbles>({FLT_MAX, -FLT_MAX}), 2);
  EXPECT_TRUE(std::isfinite(decoded[0]) && std::isfinite(decoded[1]));
}

TEST(SelectedValues, PairsAreSignAndTwoMeans) {
  std::mt19937 random(206);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<float> values = random_values(random);
    const auto in = selected_of<kernels::SelectedPairs>(values);
    ASSERT_EQ(in.size(), 4 + (values.size() + 3) / 4);
    const double mean = mean_magnitude(values);
    std::array<double, 2> sum{};
    std::array<double, 2> members{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const unsigned code = (in[4 + i / 4] >> (i % 4 * 2)) & 3U;
      const double a = std::abs(static_cast<double>(values[i]));
      ASSERT_EQ(code & 1U, std::signbit(values[i]) ? 1U : 0U);
      if (std::abs(a - mean) > mean * 1e-5) {
        ASSERT_EQ(code >> 1, a > mean ? 1U : 0U);
      }
      sum[code >> 1] += a;
      members[code >> 1] += 1;
    }
    const auto decoded = read_selected<kernels::SelectedPairs>(in, values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const unsigned high = (in[4 + i / 4] >> (i % 4 * 2 + 1)) & 1U;
      const double expected = sum[high] / members[high];
      ASSERT_NEAR(std::abs(decoded[i]), expected, expected * (0x1p-8 + 1e-5));
      ASSERT_EQ(std::signbit(decoded[i]), std::signbit(values[i]));
    }
  }
  EXPECT_EQ(selected_of<kernels::SelectedPairs>({-1e-39F, 1e-40F}), std::vector<std::uint8_t>(5, 0));
}

}  // namespace
}  // namespace gradwire::test
