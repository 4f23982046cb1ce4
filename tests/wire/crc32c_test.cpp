// Tests every CRC method against the published vectors and against a bit-by-bit computation.
#include "wire/crc32c.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gradwire::wire {
namespace {

std::uint32_t bit_by_bit(std::span<const std::byte> bytes) {
  std::uint32_t state = ~0U;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1U) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~state;
}

std::uint32_t crc_of(const Crc32cMethod& method, std::span<const std::byte> bytes) {
  return ~method.update(~0U, bytes.data(), bytes.size());
}

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  return bytes;
}

TEST(Crc32c, PublishedVectors) {
  std::vector<std::byte> ascending(32);
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    ascending[i] = static_cast<std::byte>(i);
  }
  const std::string_view digits = "123456789";
  for (const Crc32cMethod& method : crc32c_methods()) {
    SCOPED_TRACE(method.name);
    EXPECT_EQ(crc_of(method, std::as_bytes(std::span(digits))), 0xE3069283U);
    EXPECT_EQ(crc_of(method, std::vector<std::byte>(32)), 0x8A9136AAU);
    EXPECT_EQ(crc_of(method, std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
    EXPECT_EQ(crc_of(method, ascending), 0x46DD794EU);
    EXPECT_EQ(crc_of(method, {}), 0U);
  }
}

TEST(Crc32c, EveryMethodAtEveryLengthAndAlignment) {
  const unsigned seed = 5;
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto bytes = random_bytes(20000, seed);
  std::vector<std::size_t> lengths{1359, 1360, 4079, 4080, 4081, 8160, 8161, 19990};
  for (std::size_t length = 0; length < 420; ++length) {
    lengths.push_back(length);
  }
  for (const std::size_t length : lengths) {
    const auto part = std::span(bytes).subspan(length % 8, length);
    const std::uint32_t expected = bit_by_bit(part);
    for (const Crc32cMethod& method : crc32c_methods()) {
      ASSERT_EQ(crc_of(method, part), expected) << method.name << ", " << length << " bytes";
    }
  }
}

TEST(Crc32c, ContinuesWhereItStopped) {
  const auto bytes = random_bytes(10000, 6);
  const std::uint32_t whole = crc32c(bytes);
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{28}, std::size_t{4096}, bytes.size()}) {
    EXPECT_EQ(crc32c(std::span(bytes).subspan(cut), crc32c(std::span(bytes).first(cut))), whole) << cut;
  }
}

}  // namespace
}  // namespace gradwire::wire
