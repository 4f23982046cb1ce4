// Tests the contract of every codec over every tensor dtype. It names no codec: a new registry row is tested
// automatically.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "codec_facts.hpp"
#include "codec_support.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kCounts[] = {
    0, 1, 2, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, kStepShare == 1 ? 1000007 : 100007};

class CodecConformance : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (facts_ == nullptr) {
      GTEST_SKIP() << "it has no row in codec_facts.hpp, which CodecFacts.EveryCodecHasARow tells";
    }
  }

  codec::Codec codec_ = GetParam().codec();
  const CodecFacts* facts_ = facts_of(GetParam().entry->name);
  bool selects_ = GetParam().k != 0;

  // Returns the error of one element among equal ones; no codec rotates behind a selector.
  [[nodiscard]] double tolerance(double x) const { return (selects_ ? 0.3 : facts_->equals) * std::abs(x); }
};

// Mutation tried: the row of int2 is removed.
TEST(CodecFacts, EveryCodecHasARow) {
  for (const Case& one : all_cases()) {
    EXPECT_NE(facts_of(one.entry->name), nullptr)
        << "the codec " << one.entry->name
        << " has no row in tests/codec/codec_facts.hpp: add one with its errors, which "
        << "every test of this program compares with";
  }
}

// Mutation tried: the last, short block of sign, int2 and fp8 is left zero.
TEST_P(CodecConformance, RoundTripAtEveryCount) {
  for (const std::size_t count : kCounts) {
    SCOPED_TRACE(count);
    const Values values(codec_.working(), gauss(count, 11, 1e-3));
    const Frame frame = encode(codec_, values);
    EXPECT_EQ(frame.bytes.size(), codec_.frame_bytes(count));
    EXPECT_FALSE(frame.nonfinite);
    EXPECT_EQ(encode(codec_, values).bytes, frame.bytes) << "two encodings differ";
    const Values decoded = decode(codec_, frame, count);
    double error = 0;
    double power = 0;
    for (std::size_t i = 0; i < count; ++i) {
      error += (decoded[i] - values[i]) * (decoded[i] - values[i]);
      power += values[i] * values[i];
    }
    EXPECT_LE(error, power * (selects_ ? 0.9995 : (codec_.lossy() ? 0.9 : 1e-4)));
  }
}

// Mutations tried: an index off by one in topk's decoder; a reversed bit order in sign's decoder; swapped halves of
// int4.
TEST_P(CodecConformance, OneHotAtEveryIndexOfTwoTiles) {
  if (codec_.lossy() && GetParam().dtype != DType::f32) {
    return;  // f32 tests the same core
  }
  constexpr std::size_t kCount = 2 * codec::kTileElements;
  Values values(codec_.working(), kCount);
  constexpr std::size_t kStride = kStepShare == 1 ? 1 : 37;
  std::set<std::size_t> places{codec::kTileElements - 1, codec::kTileElements,
                               kCount - 1};  // borders, whatever the stride
  for (std::size_t hot = 0; hot < kCount; hot += kStride) {
    places.insert(hot);
  }
  for (const std::size_t hot : places) {
    values.set(hot, -1.5);
    const Values decoded = decode(codec_, encode(codec_, values, nullptr, false), kCount, nullptr, false);
    if (facts_->one_bit) {
      ASSERT_LT(decoded[hot], 0) << hot;
      ASSERT_EQ(decoded.count_below(0), 1U) << "not alone for one at " << hot;
    } else {
      ASSERT_NEAR(decoded[hot], -1.5, 0.02) << hot;
      ASSERT_EQ(decoded.count_below(-0.11), 1U) << "not alone for one at " << hot;
    }
    values.set(hot, 0);
  }
}

TEST_P(CodecConformance, SpecialFiniteValues) {
  const double tiny = std::numeric_limits<float>::denorm_min();
  for (const double x : {0.0, -0.0, 1.0, -1.0, 1e-3, tiny, -1e-39, 1.1754943508222875e-38, 3e4, 1e30, -2e38}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{300}, std::size_t{4097}}) {
      SCOPED_TRACE(std::to_string(x) + " x " + std::to_string(count));
      Values values(codec_.working(), count);
      for (std::size_t i = 0; i < count; ++i) {
        values.set(i, x);
      }
      const Frame frame = encode(codec_, values);
      const Values decoded = decode(codec_, frame, count);
      const bool beyond_tensor = GetParam().dtype == DType::f16 && !GetParam().entry->lossy && std::abs(x) > 65520;
      const bool overflows = beyond_tensor || (!selects_ && std::abs(x) > facts_->largest);
      EXPECT_EQ(frame.nonfinite, overflows);
      for (std::size_t i = 0; i < count && !overflows; ++i) {
        if (selects_ && decoded[i] == 0) {
          continue;  // it was dropped; topk_test.cpp counts these
        }
        // Values far below the normal numbers may become 0.
        ASSERT_NEAR(decoded[i], x, tolerance(x) + (std::abs(x) < 1e-30 ? std::abs(x) : 0)) << i;
      }
    }
  }
}

TEST_P(CodecConformance, LargestFiniteIsFiniteOrFlagged) {
  Values values(codec_.working(), 600);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values.set(i, (i % 2 == 0 ? 1.0 : -1.0) * std::numeric_limits<float>::max());
  }
  const Frame frame = encode(codec_, values);
  const Values decoded = decode(codec_, frame, values.size());
  bool all_finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    all_finite = all_finite && std::isfinite(decoded[i]);
    if (!std::isnan(decoded[i]) && !(selects_ && decoded[i] == 0)) {
      ASSERT_EQ(std::signbit(decoded[i]), std::signbit(values[i]));
    }
  }
  EXPECT_EQ(all_finite, !frame.nonfinite);
}

TEST_P(CodecConformance, NanAndInfSurvive) {
  constexpr std::size_t kCount = 3 * codec::kTileElements + 77;
  const std::vector<float> clean = gauss(kCount, 12);
  for (const double bad : {std::nan(""), -std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{255}, std::size_t{4096}, std::size_t{9000}, kCount - 1}) {
      SCOPED_TRACE(std::to_string(bad) + " at " + std::to_string(at));
      Values values(codec_.working(), clean);
      values.set(at, bad);
      const Frame frame = encode(codec_, values);
      EXPECT_TRUE(frame.nonfinite);
      const Values decoded = decode(codec_, frame, kCount);
      EXPECT_FALSE(std::isfinite(decoded[at]));
      const std::size_t tile = at / codec::kTileElements;
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_TRUE(std::isfinite(decoded[i]) || i / codec::kTileElements == tile) << "spread to " << i;
      }
    }
  }
}

TEST_P(CodecConformance, AddIsReadPlusValue) {
  constexpr std::size_t kCount = codec::kTileElements + 333;
  const Values values(codec_.working(), gauss(kCount, 13));
  const Frame frame = encode(codec_, values);
  const Values onto(codec_.working(), gauss(kCount, 14));
  const Values decoded = decode(codec_, frame, kCount);
  const Values sum = decode(codec_, frame, kCount, &onto);
  Values expected = onto;
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool f64 = codec_.working() == codec::Working::f64;
    expected.set(i, f64 ? onto[i] + decoded[i]
                        : static_cast<double>(static_cast<float>(onto[i]) + static_cast<float>(decoded[i])));
  }
  EXPECT_TRUE(sum.same(expected));
}

TEST_P(CodecConformance, ChunksDoNotChangePayload) {
  constexpr std::size_t kTile = codec::kTileElements;
  constexpr std::size_t kCount = 9 * kTile + 1234;
  const Values values(codec_.working(), gauss(kCount, 15));
  std::vector<float> residual_whole = gauss(kCount, 16, 0.1);
  const std::vector<float> residual_before = residual_whole;
  const Frame whole = encode(codec_, values, &residual_whole);
  for (const std::size_t chunk : {kTile, 2 * kTile, 4 * kTile, 5 * kTile}) {
    SCOPED_TRACE(chunk);
    std::vector<std::byte> payload;
    std::vector<float> residual = residual_before;
    for (std::size_t first = 0; first < kCount; first += chunk) {
      const auto part = encode(codec_, values, &residual, true, first, chunk).payload();
      payload.insert(payload.end(), part.begin(), part.end());
    }
    EXPECT_EQ(payload, whole.payload());
    EXPECT_EQ(residual, residual_whole);
  }
}

TEST_P(CodecConformance, AnyAddressOfTheFrame) {
  constexpr std::size_t kCount = codec::kTileElements + 100;
  const Values values(codec_.working(), gauss(kCount, 17));
  const Frame frame = encode(codec_, values);
  for (const std::size_t shift : {1U, 2U, 3U, 7U}) {
    std::vector<std::byte> buffer(frame.bytes.size() + shift);
    const auto odd = std::span(buffer).subspan(shift);
    codec::FrameWriter writer(codec_, info_for(kCount), true, odd);
    for_each_tile(kCount, [&](std::size_t i, std::uint32_t n) { writer.write(values.at(i), nullptr, n); });
    writer.finish();
    EXPECT_TRUE(std::equal(odd.begin(), odd.end(), frame.bytes.begin()));
    codec::FrameReader reader(codec_, info_for(kCount), true, odd, 0);
    Values decoded(codec_.working(), kCount);
    for_each_tile(kCount, [&](std::size_t i, std::uint32_t n) { reader.read(decoded.at(i), n); });
    EXPECT_TRUE(decoded.same(decode(codec_, frame, kCount)));
  }
}

TEST_P(CodecConformance, VerbatimBytesAreUntouched) {
  if (codec_.lossy()) {
    return;  // write_verbatim refuses this, see codec_frame_test
  }
  constexpr std::size_t kCount = codec::kTileElements + 19;
  std::mt19937 random(18);  // any bits: NaN payloads, denormals, -0
  std::vector<std::uint8_t> elements(kCount * element_bytes(GetParam().dtype));
  for (std::uint8_t& byte : elements) {
    byte = static_cast<std::uint8_t>(random());
  }
  Frame frame;
  frame.bytes.resize(codec_.frame_bytes(kCount));
  codec::FrameWriter writer(codec_, info_for(kCount), true, frame.bytes);
  const std::size_t unit = element_bytes(GetParam().dtype);
  for_each_tile(kCount, [&](std::size_t i, std::uint32_t n) { writer.write_verbatim(elements.data() + i * unit, n); });
  EXPECT_TRUE(writer.finish());  // so many random bits contain NaNs
  codec::FrameReader reader(codec_, info_for(kCount), true, frame.bytes, 0);
  std::vector<std::uint8_t> back(elements.size());
  for_each_tile(kCount, [&](std::size_t i, std::uint32_t n) { reader.read_verbatim(back.data() + i * unit, n); });
  EXPECT_EQ(back, elements);
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformance, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace gradwire::test
