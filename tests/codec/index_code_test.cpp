// Tests the indices behind topk: sizes, bytes, round trips and damage, against a decoder written only from the
// documentation.
#include "kernels/index_code.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>

#include "codec_support.hpp"
#include "documented_frames.hpp"
#include "gradwire/error.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using kernels::EliasFano;

// Draws q of n indices, each set equally likely (selection sampling, Knuth 3.4.2 S); with `crowded`, takes the last
// ones.
std::vector<std::uint16_t> draw(std::uint32_t n, std::uint32_t q, std::mt19937& random, bool crowded = false) {
  std::vector<std::uint16_t> index;
  for (std::uint32_t i = 0; i < n && index.size() < q; ++i) {
    const auto wanted = q - static_cast<std::uint32_t>(index.size());
    if (crowded ? i >= n - q : random() % (n - i) < wanted) {
      index.push_back(static_cast<std::uint16_t>(i));
    }
  }
  return index;
}

// A tile as decoders may see it: the indices, 2 bytes of values, padding to 4 bytes, and not a byte more.
class Tile {
 public:
  Tile(std::uint32_t n, std::uint32_t q)
      : bytes_(EliasFano::bytes(n, q)),
        size_(kernels::padded(bytes_ + 2, EliasFano::kAlignment)),
        data_(std::make_unique<std::uint8_t[]>(size_)) {
    std::fill_n(data_.get(), size_, std::uint8_t{0xA5});
  }
  [[nodiscard]] std::uint8_t* data() { return data_.get(); }
  [[nodiscard]] std::size_t index_bytes() const { return bytes_; }
  [[nodiscard]] documented::Bytes indices() const { return {data_.get(), bytes_}; }
  [[nodiscard]] bool marked_behind() const {
    return std::all_of(data_.get() + bytes_, data_.get() + size_, [](std::uint8_t b) { return b == 0xA5; });
  }

 private:
  std::uint32_t bytes_;
  std::uint32_t size_;
  std::unique_ptr<std::uint8_t[]> data_;  // an allocation of its own, for AddressSanitizer
};

void check_round_trip(std::uint32_t n, std::uint32_t q, std::mt19937& random, bool as_documented) {
  const auto index = draw(n, q, random, random() % 4 == 0);
  ASSERT_EQ(index.size(), q);
  ASSERT_EQ(EliasFano::bytes(n, q), documented::index_sizes(n, q).bytes) << n << " " << q;
  Tile tile(n, q);
  EliasFano::store(index.data(), n, q, tile.data());
  ASSERT_TRUE(tile.marked_behind()) << n << " " << q;
  std::uint16_t loaded[kernels::kTileElements];
  ASSERT_TRUE(EliasFano::load(tile.data(), n, q, loaded)) << n << " " << q;
  ASSERT_TRUE(std::equal(index.begin(), index.end(), loaded)) << n << " " << q;
  if (as_documented) {
    const auto documented = documented::indices(tile.indices(), n, q);
    ASSERT_TRUE(documented && std::equal(index.begin(), index.end(), documented->begin())) << n << " " << q;
  }
}

TEST(IndexCode, EveryTileOfUpTo512Elements) {
  std::mt19937 random(601);
  for (std::uint32_t n = 1; n <= 512; n += kStepShare) {
    for (std::uint32_t q = 1; q <= n; ++q) {
      check_round_trip(n, q, random, true);
    }
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST(IndexCode, AnyTile) {
  std::mt19937 random(602);
  for (unsigned round = 0; round < 100'000 / kStepShare && !HasFatalFailure(); ++round) {
    const std::uint32_t n = round % 8 == 0 ? 4096 : 1 + random() % 4096;
    const std::uint32_t q = 1 + random() % (round % 2 == 0 ? n : (n + 63) / 64);
    check_round_trip(n, q, random, round % 16 == 0);
  }
}

// These are the figures of docs/reference/wire-format-topk.md.
TEST(IndexCode, SizesOfFullTiles) {
  EXPECT_EQ(EliasFano::bytes(4096, 41), 44U);
  EXPECT_EQ(EliasFano::bytes(4096, 410), 269U);
  EXPECT_EQ(EliasFano::bytes(4096, 1), 2U);
  EXPECT_EQ(EliasFano::bytes(4096, 4096), 512U);
  std::uint32_t first_bitmap = 1;
  while (kernels::index_code(4096, first_bitmap).spread != 0) {
    ++first_bitmap;
  }
  EXPECT_EQ(first_bitmap, 1025U);
  for (std::uint32_t q = 1; q <= 4096; ++q) {  // in version 1 each index took 12 bits, two of them 3 bytes
    EXPECT_LE(EliasFano::bytes(4096, q), std::min(512U, q == 2 ? 4 : q + (q + 1) / 2)) << q;
  }
}

TEST(IndexCode, BytesByHand) {
  const auto written = [](std::vector<std::uint16_t> index, std::uint32_t n) {
    const auto q = static_cast<std::uint32_t>(index.size());
    std::vector<int> bytes(EliasFano::bytes(n, q));
    Tile tile(n, q);
    EliasFano::store(index.data(), n, q, tile.data());
    std::copy_n(tile.data(), bytes.size(), bytes.begin());
    return bytes;
  };
  // l = 3, and the run has 4 + 3 bits: bits 0, 1, 3, 6 for the upper parts 0, 0, 1, 3; then 5, 7, 0, 6.
  EXPECT_EQ(written({5, 7, 8, 30}, 32), (std::vector<int>{0xCB, 0x1E, 0x06}));
  EXPECT_EQ(written({0, 1, 3}, 4), (std::vector<int>{0x25}));  // l = 0; a bitmap takes as many bytes
  EXPECT_EQ(written({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15}, 16), (std::vector<int>{0xFF, 0x87}));  // a bitmap
  EXPECT_EQ(written({0xABC}, 4096), (std::vector<int>{0x79, 0x15}));
  EXPECT_EQ(written({0}, 1), (std::vector<int>{0x01}));
}

// Mutations tried, each fails here: load() without `at < next`, `next <= count`, `found == selected` or
// spare_bits_zero().
TEST(IndexCode, EveryFlippedBitIsRefusedOrGivesOtherIndices) {
  std::mt19937 random(603);
  unsigned refused = 0;
  unsigned accepted = 0;
  for (const auto& [n, q] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{{4096, 41},
                                                                                 {4096, 410},
                                                                                 {4096, 1},
                                                                                 {4096, 1500},
                                                                                 {4096, 4096},
                                                                                 {300, 3},
                                                                                 {50, 1},
                                                                                 {7, 3},
                                                                                 {1, 1},
                                                                                 {1409, 14},
                                                                                 {1409, 141},
                                                                                 {100, 100},
                                                                                 {4095, 1023}}) {
    for (unsigned round = 0; round < 4; ++round) {
      const auto index = draw(n, q, random, round == 3);
      Tile tile(n, q);
      EliasFano::store(index.data(), n, q, tile.data());
      for (std::size_t bit = 0; bit < 8 * tile.index_bytes(); bit += kStepShare) {
        tile.data()[bit / 8] = static_cast<std::uint8_t>(tile.data()[bit / 8] ^ 1U << (bit % 8));
        std::vector<std::uint16_t> loaded(q);
        const bool good = EliasFano::load(tile.data(), n, q, loaded.data());
        const auto wanted = documented::indices(tile.indices(), n, q);
        ASSERT_EQ(good, wanted.has_value()) << n << " " << q << " bit " << bit;
        ASSERT_TRUE(!good || std::equal(loaded.begin(), loaded.end(), wanted->begin(), wanted->end()));
        ASSERT_FALSE(good && loaded == index);
        ++(good ? accepted : refused);
        tile.data()[bit / 8] = static_cast<std::uint8_t>(tile.data()[bit / 8] ^ 1U << (bit % 8));
      }
    }
  }
  EXPECT_GT(refused, 1000U / kStepShare);
  EXPECT_GT(accepted, 1000U / kStepShare);
}

TEST(IndexCode, AnyBytesStayInBounds) {
  std::mt19937 random(604);
  for (unsigned round = 0; round < 30'000 / kStepShare; ++round) {
    const std::uint32_t n = 1 + random() % (round % 2 == 0 ? 4096 : 64);
    const std::uint32_t q = 1 + random() % n;
    Tile tile(n, q);
    const unsigned dense = 1 + round % 3;  // share of set bits: half, three in four, most
    for (std::size_t i = 0; i < tile.index_bytes(); ++i) {
      auto byte = static_cast<std::uint8_t>(random());
      for (unsigned d = 1; d < dense; ++d) {
        byte = static_cast<std::uint8_t>(byte | random());
      }
      tile.data()[i] = byte;
    }
    std::vector<std::uint16_t> loaded(q);
    const bool good = EliasFano::load(tile.data(), n, q, loaded.data());
    ASSERT_EQ(good, documented::indices(tile.indices(), n, q).has_value());
  }
}

std::vector<Case> selecting_cases() {
  std::vector<Case> cases;
  for (const Case& c : all_cases()) {
    if (c.k != 0) {
      cases.push_back(c);
    }
  }
  for (const codec::CodecEntry& entry : codec::codecs()) {
    cases.push_back({&entry, DType::f32, 3});
    cases.push_back({&entry, DType::f32, 1500});
  }
  return cases;
}

class DocumentedFrames : public ::testing::TestWithParam<Case> {};

// A decoder written only from the documentation decodes the frames.
TEST_P(DocumentedFrames, DecodeAsThePageSays) {
  const codec::Codec codec = GetParam().codec();
  for (const std::size_t count : {1, 2, 9, 300, 4095, 4096, 4097, 2 * 4096 + 1409}) {
    const Frame frame = encode(codec, Values(codec.working(), gauss(count, 605)), nullptr, false);
    const Values decoded = decode(codec, frame, count, nullptr, false);
    const documented::Bytes bytes{reinterpret_cast<const std::uint8_t*>(frame.bytes.data()), frame.bytes.size()};
    const std::vector<double> documented = documented::decode(bytes);
    ASSERT_EQ(documented.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(documented[i], decoded[i]) << i << " of " << count;
    }
  }
}

// The frames have no CRC, which would notice the damage. Flipping any bit of the tiles gives an error, or values inside
// the tensor.
TEST_P(DocumentedFrames, DamagedTilesAreCorruptOrDecode) {
  const codec::Codec codec = GetParam().codec();
  const std::size_t count = 4096 + 300;
  const Frame good = encode(codec, Values(codec.working(), gauss(count, 606)), nullptr, false);
  const std::size_t bits = 8 * (good.bytes.size() - wire::kHeaderBytes);
  for (std::size_t bit = 0; bit < bits; bit += 1 + bits / 4096) {
    Frame frame = good;
    frame.bytes[wire::kHeaderBytes + bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    for (const bool add : {false, true}) {
      try {
        const Values onto(codec.working(), count);
        const Values values = decode(codec, frame, count, add ? &onto : nullptr, false);
        ASSERT_EQ(values.size(), count);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::corrupt);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DocumentedFrames, ::testing::ValuesIn(selecting_cases()), case_name);

}  // namespace
}  // namespace gradwire::test
