// Tests int4 and int2 over a tile: the generator, the rotation, the grids, and both directions of the codec, against
// arithmetic that is written down independently, in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "codec_support.hpp"
#include "kernels/int2.hpp"
#include "kernels/int4.hpp"

namespace gradwire::test {
namespace {

// These are the known answers of the reference implementation (Random123).
TEST(Philox, KnownAnswers) {
  struct Row {
    std::array<std::uint32_t, 4> counter;
    std::array<std::uint32_t, 2> key;
    std::array<std::uint32_t, 4> expected;
  };
  constexpr std::uint32_t kOnes = 0xFFFFFFFFU;
  for (const Row& row :
       {Row{{0, 0, 0, 0}, {0, 0}, {0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U}},
        Row{{kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}, {0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU}},
        Row{{0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U},
            {0xA4093822U, 0x299F31D0U},
            {0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U}}}) {
    kernels::Philox counter{};
    std::copy(row.counter.begin(), row.counter.end(), counter.word);
    const kernels::Philox random = kernels::philox(counter, row.key[0], row.key[1]);
    EXPECT_TRUE(std::equal(row.expected.begin(), row.expected.end(), random.word));
  }
}

TEST(Rotation, SignsAreTheBitsOfTheGenerator) {
  const kernels::RotationSigns signs({.bucket = 11, .step = 12, .index = 13, .k = 14});
  for (std::uint32_t i = 0; i < 256; ++i) {
    const kernels::Philox random = kernels::philox({{11, 12, 13, i / 128}}, 0x67726164U, 0x77697265U);
    const bool flips = ((random.word[i % 128 / 32] >> (i % 32)) & 1U) != 0;
    ASSERT_EQ(signs.flips(i), flips) << i;
  }
}

TEST(Rotation, SignsAreAFunctionOfBucketStepAndTile) {
  const auto words = [](kernels::Tile tile) {
    const kernels::RotationSigns signs(tile);
    return std::vector<std::uint32_t>(signs.word, signs.word + 8);
  };
  const auto base = words({.bucket = 1, .step = 2, .index = 3});
  EXPECT_EQ(base, words({.bucket = 1, .step = 2, .index = 3, .k = 9}));
  EXPECT_NE(base, words({.bucket = 2, .step = 2, .index = 3}));
  EXPECT_NE(base, words({.bucket = 1, .step = 3, .index = 3}));
  EXPECT_NE(base, words({.bucket = 1, .step = 2, .index = 4}));
  EXPECT_FALSE(std::equal(base.begin(), base.begin() + 4, base.begin() + 4));
}

// Multiplies by H[i][j] = (-1)^popcount(i & j) / 16.
std::vector<double> hadamard_of(const std::vector<double>& x) {
  std::vector<double> y(256);
  for (unsigned i = 0; i < 256; ++i) {
    for (unsigned j = 0; j < 256; ++j) {
      y[i] += (std::popcount(i & j) % 2 == 0 ? x[j] : -x[j]) / 16;
    }
  }
  return y;
}

TEST(Rotation, IsTheHadamardMatrix) {
  const std::vector<float> x = gauss(256, 301);
  std::vector<float> y = x;
  kernels::hadamard(y.data());
  const auto expected = hadamard_of({x.begin(), x.end()});
  for (std::size_t i = 0; i < 256; ++i) {
    ASSERT_NEAR(y[i] / 16, expected[i], 1e-5);
  }
  kernels::hadamard(y.data());
  for (std::size_t i = 0; i < 256; ++i) {
    ASSERT_NEAR(y[i] / 256, x[i], 1e-5);
  }
}

TEST(Grids, AreCloseToTheBestForAGaussian) {
  // Lloyd-Max levels for unit variance (Max 1960); the scale contains a common factor.
  constexpr std::array<double, 8> kHalf4{.128395, .388048, .656759, .942340, 1.256231, 1.618046, 2.069017, 2.732590};
  constexpr std::array<double, 2> kHalf2{.452780, 1.510418};
  const auto check = [](auto grid, const auto& half, double unit, double tolerance) {
    using Grid = decltype(grid);
    using Core = kernels::RotatedCore<Grid>;
    ASSERT_EQ(Grid::kCells, half.size());
    ASSERT_EQ(2 * Grid::kCells, 1U << Grid::kBits);
    int sum = 0;
    for (unsigned cell = 0; cell < Grid::kCells; ++cell) {
      EXPECT_NEAR(Grid::magnitude(cell) * unit, half[cell], tolerance);
      EXPECT_EQ(Core::level(Grid::kCells + cell), Grid::magnitude(cell));
      EXPECT_EQ(Core::level(Grid::kCells - 1 - cell), -Grid::magnitude(cell));
      sum = std::max(sum, 256 * Grid::magnitude(cell));
      if (cell + 1 < Grid::kCells) {
        EXPECT_NEAR(Grid::threshold(cell) / 1024.0, (half[cell] + half[cell + 1]) / 2, tolerance);
      }
    }
    EXPECT_LT(sum, 1 << 15);  // the rotation of levels is exact in 16 bits
  };
  check(kernels::Int4Grid(), kHalf4, 1.0 / 32, 1.0 / 64);
  check(kernels::Int2Grid(), kHalf2, .1510418, 5e-4);
}

template <class Grid>
class Rotated : public ::testing::Test {
 protected:
  using Core = kernels::RotatedCore<Grid>;
  static constexpr unsigned kCodeBytes = 256 * Grid::kBits / 8;
  const kernels::Tile tile_{.bucket = 5, .step = 6, .index = 7};

  static unsigned code_at(const std::vector<std::uint8_t>& payload, std::uint32_t count, std::uint32_t i) {
    const std::size_t at = (count + 255) / 256 * 2 + i / 256 * kCodeBytes;
    const std::uint32_t in_block = i % 256;
    return (payload[at + in_block % kCodeBytes] >> (in_block / kCodeBytes * Grid::kBits)) & ((1U << Grid::kBits) - 1);
  }
  static double scale_at(const std::vector<std::uint8_t>& payload, std::uint32_t block) {
    return static_cast<double>(kernels::from_bf16(kernels::load<std::uint16_t>(payload.data(), block)));
  }
  [[nodiscard]] std::vector<std::uint8_t> encode(const std::vector<float>& values) const {
    const auto count = static_cast<std::uint32_t>(values.size());
    std::vector<std::uint8_t> payload(Core::tile_bytes(0, count));
    EXPECT_FALSE(Core::encode(tile_, values.data(), nullptr, count, payload.data()));
    return payload;
  }
  [[nodiscard]] double sign(std::uint32_t i) const { return kernels::RotationSigns(tile_).flips(i) ? -1 : 1; }
  static unsigned nearest(double z) {
    unsigned code = Grid::kCells;
    for (unsigned i = 0; i + 1 < Grid::kCells; ++i) {
      code += std::abs(z) * 1024 >= Grid::threshold(i) ? 1 : 0;
    }
    return z < 0 ? 2 * Grid::kCells - 1 - code : code;
  }
};

using Grids = ::testing::Types<kernels::Int4Grid, kernels::Int2Grid>;
TYPED_TEST_SUITE(Rotated, Grids);

// Mutations tried: a stride is left out; the scale of the previous block is used; codes of the two halves are swapped.
TYPED_TEST(Rotated, DecodesAsDocumented) {
  const std::vector<float> values = gauss(700, 302, 1e-4);
  const auto payload = this->encode(values);
  std::vector<float> decoded(values.size());
  TestFixture::Core::decode(this->tile_, payload.data(), 700, decoded.data());
  for (std::uint32_t block = 0; block < 3; ++block) {
    std::vector<double> levels(256);
    for (std::uint32_t i = 0; i < 256; ++i) {
      levels[i] = TestFixture::Core::level(this->code_at(payload, 700, block * 256 + i));
    }
    const auto rotated = hadamard_of(levels);
    for (std::uint32_t i = 0; i < 256 && block * 256 + i < 700; ++i) {
      const double expected = rotated[i] * this->sign(i) * this->scale_at(payload, block);
      ASSERT_NEAR(decoded[block * 256 + i], expected, 1e-9) << block << ' ' << i;
    }
  }
}

TYPED_TEST(Rotated, EncodesAsDocumented) {
  std::mt19937 random(303);
  for (int round = 0; round < 60; ++round) {
    const double magnitude = std::pow(10.0, static_cast<double>(random() % 66) - 32);
    const std::vector<float> values = gauss(1 + random() % 256, random(), magnitude);
    const auto count = static_cast<std::uint32_t>(values.size());
    const auto payload = this->encode(values);
    std::vector<double> x(256);
    for (std::uint32_t i = 0; i < count; ++i) {
      x[i] = this->sign(i) * static_cast<double>(values[i]);
    }
    const auto y = hadamard_of(x);
    double squares = 0;
    for (const double v : y) {
      squares += v * v;
    }
    const double spread = std::sqrt(squares / 256);
    double along = 0;
    double across = 0;
    for (std::uint32_t i = 0; i < 256; ++i) {
      const unsigned code = this->code_at(payload, count, i);
      const double level = TestFixture::Core::level(code);
      along += y[i] * level;
      across += level * level;
      // The value is rounded to multiples of 1/1024, so near a threshold either side is right within half of one.
      const double z = y[i] / spread;
      ASSERT_TRUE(code == this->nearest(z + 0.51 / 1024) || code == this->nearest(z - 0.51 / 1024)) << i << ' ' << z;
    }
    ASSERT_NEAR(this->scale_at(payload, 0), along / across, along / across * (0x1p-8 + 1e-3));
  }
}

TYPED_TEST(Rotated, BlocksBeyondTheLimitAreNotFinite) {
  std::vector<float> values(600, 1.0F);
  values[300] = 0x1p119F;
  std::vector<std::uint8_t> payload(TestFixture::Core::tile_bytes(0, 600));
  std::vector<float> residual(600, 0.25F);
  EXPECT_TRUE(TestFixture::Core::encode(this->tile_, values.data(), residual.data(), 600, payload.data()));
  EXPECT_TRUE(std::isnan(this->scale_at(payload, 1)));
  EXPECT_EQ(residual[300], 0.25F);
  EXPECT_EQ(residual[511], 0.25F);
  EXPECT_NE(residual[0], 0.25F);
  values[300] = -0x1.fffffep118F;
  residual.assign(600, 0.0F);
  EXPECT_FALSE(TestFixture::Core::encode(this->tile_, values.data(), residual.data(), 600, payload.data()));
  TestFixture::Core::decode(this->tile_, payload.data(), 600, values.data());
  for (std::size_t i = 0; i < 600; ++i) {
    ASSERT_TRUE(std::isfinite(values[i]) && std::isfinite(residual[i])) << i;
  }
}

}  // namespace
}  // namespace gradwire::test
