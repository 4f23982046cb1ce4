// Compares every instruction set with the scalar core, tile by tile: payload, flag, residual, decoded and added values.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "codec_support.hpp"
#include "kernels/topk.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kTile = codec::kTileElements;

struct Tile {
  Values values;
  std::vector<float> residual;
};

struct Outcome {
  std::vector<std::uint8_t> payload;
  bool nonfinite = false;
  std::vector<float> residual;
  Values decoded;
  Values added;
};

// Makes a tile of one kind: any bits, near the smallest, near the largest, moderate, or mostly zero.
Tile make_tile(codec::Working type, std::uint32_t count, unsigned kind, std::mt19937& random) {
  Tile tile{Values(type, count), std::vector<float>(count)};
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t bits = random();
    switch (kind) {
      case 1: bits = (bits & 0x807FFFFFU) | (random() % 12 << 23); break;
      case 2: bits = (bits & 0x807FFFFFU) | ((244 + random() % 11) << 23); break;
      case 3: bits = (bits & 0x807FFFFFU) | ((110 + random() % 20) << 23); break;
      case 4: bits = random() % 200 == 0 ? 0x3F800000U : bits & 0x80000000U; break;
      default: break;
    }
    float x = 0;
    std::memcpy(&x, &bits, sizeof x);
    tile.values.set(i, x);
    const float small = kind == 1 ? 1e-45F : 1e-11F;
    tile.residual[i] = static_cast<float>(static_cast<std::int32_t>(random())) * small;
  }
  return tile;
}

enum class Feedback : std::uint8_t { none, in_place, apart };

Outcome run(const codec::TileCoder& coder, std::uint16_t k, const Tile& tile, Feedback feedback) {
  const auto count = static_cast<std::uint32_t>(tile.values.size());
  const kernels::Tile where{.bucket = 1, .step = 2, .index = 3, .k = k};
  Outcome outcome{std::vector<std::uint8_t>(coder.tile_bytes(k, count) + 64, 0xA5), false, tile.residual, tile.values,
                  tile.values};
  kernels::Residual residual = nullptr;
  if (feedback == Feedback::in_place) {
    residual = outcome.residual.data();
  } else if (feedback == Feedback::apart) {
    std::fill(outcome.residual.begin(), outcome.residual.end(), 123.0F);
    residual = {tile.residual.data(), outcome.residual.data()};
  }
  outcome.nonfinite = coder.encode(where, tile.values.at(0), residual, count, outcome.payload.data());
  coder.decode(where, outcome.payload.data(), count, outcome.decoded.at(0));
  coder.decode_add(where, outcome.payload.data(), count, outcome.added.at(0));
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.payload, b.payload);
  ASSERT_EQ(a.nonfinite, b.nonfinite);
  ASSERT_EQ(0, std::memcmp(a.residual.data(), b.residual.data(), a.residual.size() * sizeof(float)));
  ASSERT_TRUE(a.decoded.same(b.decoded));
  ASSERT_TRUE(a.added.same(b.added));
}

class InstructionSets : public ::testing::TestWithParam<Case> {
 protected:
  std::uint16_t k_ = GetParam().k;

  [[nodiscard]] const codec::TileCoder& coder(const codec::InstructionSet& set) const {
    return set.coder(*GetParam().entry, GetParam().dtype, k_);
  }
};

// Mutations tried: bf16 behind topk takes a value that rounds to Inf for finite; topk skips the last of more than four
// elements of a word; a section of int4 has a threshold that is one off; signs go to the wrong one of a pair; a
// separate residual is not kept if a block is not finite.
TEST_P(InstructionSets, SameAsScalar) {
  const unsigned seed = 31;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto sets = codec::instruction_sets();
  const codec::TileCoder& scalar = coder(sets.front());
  const unsigned rounds = (k_ == 0 ? 1500U : 500U) / kStepShare;  // sizes have the same effect for every k
  for (unsigned round = 0; round < rounds; ++round) {
    const auto count = static_cast<std::uint32_t>(
        round < rounds * 2 / 5 ? round + 1 : (round % 3 == 0 ? kTile : 1 + random() % kTile));
    const Tile tile = make_tile(scalar.working, count, round % 5, random);
    const auto feedback = static_cast<Feedback>(random() % 3);
    const bool apart = feedback == Feedback::apart;  // otherwise in place
    const Outcome expected = run(scalar, k_, tile, apart ? Feedback::in_place : feedback);
    for (const codec::InstructionSet& set : sets.subspan(apart ? 0 : 1)) {
      SCOPED_TRACE(std::string(set.name) + ", round " + std::to_string(round) + ", count " + std::to_string(count));
      expect_same(run(coder(set), k_, tile, feedback), expected);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST_P(InstructionSets, AnyPayloadDecodesAlike) {
  std::mt19937 random(32);
  const auto sets = codec::instruction_sets();
  const codec::TileCoder& scalar = coder(sets.front());
  for (unsigned round = 0; round < 200; ++round) {
    const auto count = static_cast<std::uint32_t>(1 + random() % kTile);
    const kernels::Tile where{.k = k_};
    std::vector<std::uint8_t> payload(scalar.tile_bytes(k_, count));
    std::size_t any = 0;  // bytes from here on may have any value
    if (k_ != 0) {
      const Tile tile = make_tile(scalar.working, count, 3, random);
      scalar.encode(where, tile.values.at(0), nullptr, count, payload.data());
      any = kernels::EliasFano::bytes(count, kernels::selected_count(k_, count));
    }
    std::generate(payload.begin() + static_cast<std::ptrdiff_t>(any), payload.end(),
                  [&] { return static_cast<std::uint8_t>(random()); });
    Values expected(scalar.working, count);
    scalar.decode(where, payload.data(), count, expected.at(0));
    for (const codec::InstructionSet& set : sets.subspan(1)) {
      Values decoded(scalar.working, count);
      coder(set).decode(where, payload.data(), count, decoded.at(0));
      ASSERT_TRUE(decoded.same(expected)) << set.name;
    }
  }
}

TEST_P(InstructionSets, NarrowAndCopyAsScalar) {
  std::mt19937 random(33);
  const auto sets = codec::instruction_sets();
  const codec::TileCoder& scalar = coder(sets.front());
  if (scalar.copy == nullptr) {
    return;
  }
  const std::size_t unit = element_bytes(GetParam().dtype);
  for (unsigned round = 0; round < 300; ++round) {
    const auto count = static_cast<std::uint32_t>(round < 100 ? round : random() % kTile);
    const Tile tile = make_tile(scalar.working, count, round % 5, random);
    const auto narrow = [&](const codec::TileCoder& implementation) {
      std::vector<std::uint8_t> out(count * unit + 16, 0xA5);
      implementation.narrow(count == 0 ? nullptr : tile.values.at(0), count, out.data());
      return out;
    };
    const auto copy = [&](const codec::TileCoder& implementation, const std::vector<std::uint8_t>& elements) {
      std::vector<std::uint8_t> out(implementation.tile_bytes(0, count) + 16, 0xA5);
      out.back() = implementation.copy(elements.data(), count, out.data()) ? 1 : 0;
      return out;
    };
    const auto elements = narrow(scalar);
    for (const codec::InstructionSet& set : sets.subspan(1)) {
      ASSERT_EQ(narrow(coder(set)), elements) << set.name;
      ASSERT_EQ(copy(coder(set), elements), copy(scalar, elements)) << set.name;
    }
  }
}

std::vector<std::uint32_t> bits_of_all(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float x : values) {
    bits.push_back(std::bit_cast<std::uint32_t>(x));
  }
  return bits;
}

TEST(StochasticBf16, SameBitsOnEveryInstructionSet) {
  const unsigned seed = 71;
  std::mt19937 random(seed);
  const auto sets = codec::instruction_sets();
  for (unsigned round = 0; round < 300; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    std::vector<float> values(round < 100 ? round : random() % kTile);
    for (float& x : values) {  // any bits: Inf, NaN, denormals and the largest numbers too
      x = std::bit_cast<float>(static_cast<std::uint32_t>(random()) | (random() % 8 == 0 ? 0x7F7F0000U : 0U));
    }
    const kernels::RoundingKey key{{static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())}};
    const auto index = round % 3 == 0 ? 0xFFFFFF00U : static_cast<std::uint32_t>(random());
    const auto round_by = [&](const codec::InstructionSet& set) {
      std::vector<std::uint16_t> out(values.size() + 8, 0xA5A5);
      set.residuals.to_bf16(key, index, values.data(), values.size(), out.data());
      return out;
    };
    const auto expected = round_by(sets.front());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float back = kernels::from_bf16(expected[i]);
      ASSERT_EQ(std::isfinite(values[i]), std::isfinite(back));
      ASSERT_EQ(std::isnan(values[i]), std::isnan(back));
    }
    const auto widen_by = [&](const codec::InstructionSet& set) {
      std::vector<float> out(values.size() + 8, 0.5F);
      set.residuals.from_bf16(expected.data(), values.size(), out.data());
      return bits_of_all(out);
    };
    for (const codec::InstructionSet& set : sets.subspan(1)) {
      ASSERT_EQ(round_by(set), expected) << set.name;
      ASSERT_EQ(widen_by(set), widen_by(sets.front())) << set.name;
    }
  }
}

TEST(StochasticInt8, SameBitsOnEveryInstructionSet) {
  using Core = kernels::StochasticInt8;
  const unsigned seed = 72;
  std::mt19937 random(seed);
  const auto sets = codec::instruction_sets();
  for (unsigned round = 0; round < 600; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const std::size_t blocks = random() % 5;
    std::vector<float> values(blocks * Core::kBlock);
    for (float& x : values) {  // finite values of like size, or any bits
      x = round % 4 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(random()))
                         : std::ldexp(static_cast<float>(random()) / 4e9F - 0.5F, static_cast<int>(round % 250) - 125);
    }
    const kernels::RoundingKey key{{static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())}};
    const auto index = static_cast<std::uint32_t>(random()) / Core::kBlock * Core::kBlock;
    const auto round_by = [&](const codec::InstructionSet& set) {
      std::vector<std::uint8_t> out(blocks * Core::kBlockBytes + 8, 0xA5);
      set.residuals.to_int8(key, index, values.data(), blocks, out.data());
      return out;
    };
    const auto expected = round_by(sets.front());
    const auto widen_by = [&](const codec::InstructionSet& set) {
      std::vector<float> out(values.size() + 8, 0.5F);
      set.residuals.from_int8(expected.data(), blocks, out.data());
      return bits_of_all(out);
    };
    for (const codec::InstructionSet& set : sets.subspan(1)) {
      ASSERT_EQ(round_by(set), expected) << set.name;
      ASSERT_EQ(widen_by(set), widen_by(sets.front())) << set.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSets, ::testing::ValuesIn(all_cases()), case_name);

TEST(InstructionSetList, HasSimdWhereHighwayIsBuiltIn) {
  const auto sets = codec::instruction_sets();
  EXPECT_EQ(sets.front().name, "scalar");
#if defined(GRADWIRE_HIGHWAY) && (defined(__x86_64__) || defined(__aarch64__))
  EXPECT_GT(sets.size(), 1U) << "the codecs would silently be scalar";
  const auto has_simd = [&](const codec::CodecEntry& codec) {
    return sets.front().coder(codec, DType::f32).encode != sets.back().coder(codec, DType::f32).encode;
  };
  EXPECT_TRUE(std::ranges::any_of(codec::codecs(), has_simd)) << "the table of SIMD codecs holds scalar ones only";
#endif
}

#if defined(GRADWIRE_HIGHWAY) && defined(__x86_64__) && defined(__linux__)
// The library uses exactly the instruction sets that the operating system reports for the CPU.
TEST(InstructionSets, AreThoseOfTheCpu) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; flags.empty() && std::getline(cpuinfo, line);) {
    if (line.starts_with("flags")) {
      std::istringstream words(line);
      flags.insert(std::istream_iterator<std::string>(words), {});
    }
  }
  ASSERT_TRUE(flags.contains("fpu")) << "no flags in /proc/cpuinfo";
  const auto has = [&](std::initializer_list<const char*> all) {
    return std::ranges::all_of(all, [&](const char* flag) { return flags.contains(flag); });
  };
  const bool sse4 = has({"ssse3", "sse4_2", "aes", "pclmulqdq"});
  const bool avx2 = sse4 && has({"avx2", "fma", "bmi1", "bmi2", "f16c", "abm"});
  [[maybe_unused]] const bool avx3 = avx2 && has({"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx512cd"});
  std::set<std::string_view> used;
  for (const auto& set : codec::instruction_sets()) {
    used.insert(set.name);
  }
  EXPECT_EQ(used.contains("SSE4"), sse4);
  EXPECT_EQ(used.contains("AVX2"), avx2);
#if !defined(GRADWIRE_SANITIZED)  // sanitizer builds have fewer sets
  EXPECT_EQ(used.contains("SSSE3"), has({"ssse3"}));
  EXPECT_EQ(used.contains("AVX3"), avx3);
#endif
}
#endif

}  // namespace
}  // namespace gradwire::test
