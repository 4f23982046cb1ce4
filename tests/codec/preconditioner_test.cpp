// Tests the diagonal by which lossy codecs see values: exact both ways, powers of two, with a floor.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "codec/preconditioner.hpp"

namespace gradwire::codec {
namespace {

// Returns the results for values of 1, which are 1 / s.
std::vector<float> reciprocals(const std::vector<float>& diagonal) {
  Preconditioner preconditioner;
  preconditioner.append(diagonal.data(), diagonal.size());
  std::vector<float> values(diagonal.size(), 1.0F), scratch(diagonal.size());
  TileScale(&preconditioner, 0, static_cast<std::uint32_t>(values.size()), scratch.data()).divide(values.data());
  return values;
}

TEST(Preconditioner, CountsByTheNearestPowerOfTwoOfTheLargest) {
  const float below = std::nextafter(std::sqrt(2.0F) / 4, 0.0F);
  const float above = std::nextafter(std::sqrt(2.0F) / 4, 1.0F);
  EXPECT_EQ(reciprocals({1.0F, 0.25F, below, above, 1.2F}), (std::vector<float>{1, 4, 4, 2, 1}));
  EXPECT_EQ(reciprocals({3e30F, 3e30F / 8}), (std::vector<float>{1, 8}));
  EXPECT_EQ(reciprocals({3e-36F, 3e-36F / 8}), (std::vector<float>{1, 8}));
}

// Mutations tried: there is no floor; a value that is not finite counts as the largest.
TEST(Preconditioner, WhatIsNoScaleCountsAsTheFloor) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float floor = 65536;
  EXPECT_EQ(reciprocals({2.0F, 0.0F, -0.0F, -1.0F, infinity, -infinity, nan, 1e-30F, 1e-42F}),
            (std::vector<float>{1, floor, floor, floor, floor, floor, floor, floor, floor}));
  EXPECT_EQ(reciprocals({0.0F, nan, -3.0F, infinity}), (std::vector<float>{1, 1, 1, 1}));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(reciprocals({largest, largest / 2}), (std::vector<float>{1, 2}));
}

TEST(Preconditioner, WhatIsDividedComesBackToTheBit) {
  std::vector<float> first(1000), second(3096), whole;
  for (std::size_t i = 0; i < first.size(); ++i) {
    first[i] = static_cast<float>(std::exp(std::sin(0.7 * static_cast<double>(i)) * 9));
  }
  for (std::size_t i = 0; i < second.size(); ++i) {
    second[i] = static_cast<float>(std::exp(std::cos(0.3 * static_cast<double>(i)) * 12));
  }
  whole = first;
  whole.insert(whole.end(), second.begin(), second.end());
  Preconditioner parts, one;
  parts.append(first.data(), first.size());
  parts.append(nullptr, 0);
  parts.append(second.data(), second.size());
  one.append(whole.data(), whole.size());
  std::vector<float> values(4096), scratch(4096), other_scratch(4096);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  }
  std::vector<float> divided = values, likewise = values;
  TileScale scale(&parts, 0, 4096, scratch.data());
  scale.divide(divided.data());
  TileScale(&one, 0, 4096, other_scratch.data()).divide(likewise.data());
  EXPECT_EQ(divided, likewise);
  EXPECT_NE(divided, values);
  scale.multiply(divided.data());
  EXPECT_EQ(divided, values);
}

}  // namespace
}  // namespace gradwire::codec
