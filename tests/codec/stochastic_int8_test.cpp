// Stochastic rounding to blocks of int8: unbiased, within a step of the scale, and stable.
#include "kernels/stochastic_int8.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.hpp"

namespace gradwire::test {
namespace {

using Int8Core = kernels::StochasticInt8;
using BlockValues = std::array<float, Int8Core::kBlock>;

BlockValues stored_and_loaded(const BlockValues& values, kernels::RoundingKey key) {
  std::array<std::uint8_t, Int8Core::kBlockBytes> bytes{};
  codec::round_to_int8(key, 0, values.data(), 1, bytes.data());
  BlockValues back{};
  codec::widen_int8(bytes.data(), 1, back.data());
  return back;
}

TEST(StochasticInt8, KeepsTheMeanOfEveryValue) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const float largest =
        std::ldexp(1 + static_cast<float>(random() % 1024) / 1024, static_cast<int>(random() % 180) - 70);
    BlockValues values{};
    for (float& x : values) {
      x = largest * (static_cast<float>(random() % 20001) / 10000 - 1);
    }
    values[random() % Int8Core::kBlock] = largest;
    const double step = std::ldexp(1.0, std::ilogb(largest) - 5);  // the largest scale that it may have
    constexpr int kTimes = 4000;
    std::array<double, Int8Core::kBlock> sum{};
    for (int i = 0; i < kTimes; ++i) {
      const BlockValues back =
          stored_and_loaded(values, {{static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())}});
      for (std::size_t j = 0; j < back.size(); ++j) {
        ASSERT_LT(std::abs(static_cast<double>(back[j]) - static_cast<double>(values[j])), step);
        sum[j] += back[j];
      }
    }
    for (std::size_t j = 0; j < values.size(); ++j) {
      EXPECT_NEAR(sum[j] / kTimes, values[j], 6 * 0.5 * step / std::sqrt(kTimes)) << j;
    }
  }
}

// So what is carried over unchanged is not rounded again.
TEST(StochasticInt8, WhatABlockHoldsStays) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    std::array<std::uint8_t, Int8Core::kBlockBytes> bytes{};
    for (std::uint8_t& byte : bytes) {
      byte = static_cast<std::uint8_t>(random());
    }
    bytes[0] = static_cast<std::uint8_t>(27 + random() % (248 - 27 + 1));
    BlockValues values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      bytes[1 + i] = bytes[1 + i] == 0x80 ? 0 : bytes[1 + i];
    }
    codec::widen_int8(bytes.data(), 1, values.data());
    ASSERT_EQ(stored_and_loaded(values, {{static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())}}),
              values);
  }
}

TEST(StochasticInt8, TheEndsOfTheRange) {
  constexpr kernels::RoundingKey kKey{{1, 2}};
  EXPECT_EQ(stored_and_loaded(BlockValues{}, kKey), BlockValues{});
  std::array<std::uint8_t, Int8Core::kBlockBytes> bytes{};
  bytes.fill(7);
  codec::round_to_int8(kKey, 0, BlockValues{}.data(), 1, bytes.data());
  EXPECT_EQ(bytes, (std::array<std::uint8_t, Int8Core::kBlockBytes>{})) << "zeros are zero bytes";
  BlockValues large{};
  large.fill(std::numeric_limits<float>::max());
  large[3] = -large[3];
  for (const float x : stored_and_loaded(large, kKey)) {
    EXPECT_TRUE(std::isfinite(x)) << "a finite value stays finite";
    EXPECT_NEAR(std::abs(x) / large[0], 1, 1.0 / 64);
  }
  EXPECT_LT(stored_and_loaded(large, kKey)[3], 0);
  BlockValues tiny{};
  tiny.fill(std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(stored_and_loaded(tiny, kKey), BlockValues{});
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    BlockValues damaged{};
    damaged.fill(1);
    damaged[9] = bad;
    for (const float x : stored_and_loaded(damaged, kKey)) {
      EXPECT_TRUE(std::isnan(x));
    }
  }
}

}  // namespace
}  // namespace gradwire::test
