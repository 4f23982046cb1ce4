// Stochastic rounding to bf16: unbiased, independent from element to element, and the same bits everywhere.
#include "kernels/stochastic_bf16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "codec/registry.hpp"

namespace gradwire::test {
namespace {

// The random bits are part of what a training gives, so a change to them must be seen.
TEST(StochasticBf16, RandomBitsAreFixed) {
  const kernels::RoundingKey key{{0x01234567, 0x89ABCDEF}};
  std::vector<std::uint32_t> bits;
  for (const std::uint32_t index : {0U, 1U, 16U, 4095U, 0xFFFFFFFFU}) {
    bits.push_back(kernels::rounding_bits(key, index));
  }
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{52343, 55826, 5732, 47683, 40372}));
}

TEST(StochasticBf16, KeepsTheMeanOfEveryValue) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  constexpr std::uint32_t kValues = 1U << 18;
  std::vector<std::uint16_t> rounded(kValues);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const std::uint32_t bits = (random() & 0x807FFFFFU) | (1U + random() % 253U) << 23;
    const std::vector<float> values(kValues, kernels::bits_as<float>(bits));
    const kernels::RoundingKey key{{static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())}};
    codec::round_to_bf16(key, static_cast<std::uint32_t>(random()), values.data(), kValues, rounded.data());
    double up = 0;
    double neighbours = 0;
    const double share = (bits & 0xFFFFU) / 65536.0;  // of values that go up
    for (std::uint32_t i = 0; i < kValues; ++i) {
      const int step = rounded[i] - (bits >> 16);
      ASSERT_TRUE(step == 0 || (step == 1 && share > 0)) << "not one of the two nearest values";
      up += step;
      neighbours += i > 0 ? (step - share) * (rounded[i - 1] - static_cast<double>(bits >> 16) - share) : 0;
    }
    const double variance = share * (1 - share);
    EXPECT_NEAR(up / kValues, share, 6 * std::sqrt(variance / kValues) + 1e-12) << values[0];
    EXPECT_NEAR(neighbours / kValues, 0, 6 * variance / std::sqrt(kValues) + 1e-6) << values[0];
  }
}

TEST(StochasticBf16, WhatBf16HoldsStays) {
  const kernels::RoundingKey key{{1, 2}};
  for (std::uint32_t half = 0; half <= 0xFFFF; ++half) {
    const float x = kernels::from_bf16(static_cast<std::uint16_t>(half));
    const std::uint16_t back = kernels::to_bf16_stochastic(x, kernels::rounding_bits(key, half));
    ASSERT_EQ(back, x != x ? kernels::kNanBf16 : half);
  }
  EXPECT_EQ(kernels::to_bf16_stochastic(3.4028235e38F, 0xFFFF), 0x7F7F) << "a finite value stays finite";
  EXPECT_EQ(kernels::to_bf16_stochastic(-3.4028235e38F, 0xFFFF), 0xFF7F);
}

}  // namespace
}  // namespace gradwire::test
