// Tests the selector: which elements it keeps, compared with a sort; how many; its payload; and its effect on
// residuals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "codec_support.hpp"
#include "documented_frames.hpp"
#include "kernels/topk.hpp"

namespace gradwire::test {
namespace {

// Returns the positions that a sort keeps: by magnitude, ties to the lower index; ascending.
std::vector<std::uint32_t> by_sorting(const std::vector<float>& x, std::size_t selected) {
  std::vector<std::uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto magnitude = [&](std::uint32_t i) {
    return std::isnan(x[i]) ? HUGE_VAL * 1.0 : std::abs(static_cast<double>(x[i]));
  };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return magnitude(a) > magnitude(b); });
  order.resize(selected);
  std::sort(order.begin(), order.end());
  return order;
}

// Returns the indices of the frame's first tile, which has n elements.
std::vector<std::uint32_t> indices(const Frame& frame, std::size_t n, std::size_t selected) {
  const auto* in = reinterpret_cast<const std::uint8_t*>(frame.bytes.data() + wire::kHeaderBytes);
  return documented::indices({in, frame.bytes.size() - wire::kHeaderBytes}, n, selected).value();
}

std::size_t selected_of(std::size_t k, std::size_t count) {
  return std::clamp<std::size_t>((k * count + 2048) / 4096, 1, count);
}

// Makes values of one kind: smooth, many ties, mostly zero, all zero, all equal, huge range, increasing.
std::vector<float> make_values(std::size_t count, unsigned kind, std::mt19937& random) {
  std::vector<float> x = gauss(count, random());
  for (std::size_t i = 0; i < count; ++i) {
    switch (kind) {
      case 1: x[i] = std::round(x[i]); break;
      case 2: x[i] = random() % 100 == 0 ? x[i] : (random() % 2 == 0 ? 0.0F : -0.0F); break;
      case 3: x[i] = 0; break;
      case 4: x[i] = i % 2 == 0 ? 2.5F : -2.5F; break;
      case 5: x[i] = std::ldexp(x[i], static_cast<int>(random() % 250) - 140); break;
      case 6: x[i] = static_cast<float>(i); break;
      default: break;
    }
  }
  return x;
}

// Mutation tried: ties skip element 0.
TEST(TopK, KeepsTheLargestAndTiesToTheLowerIndex) {
  std::mt19937 random(401);
  for (unsigned round = 0; round < 1500; ++round) {
    const std::size_t count = round % 3 == 0 ? 4096 : 1 + random() % 4096;
    const auto k = static_cast<std::uint16_t>(round % 4 == 0 ? 1 + random() % 4096 : 1 + random() % 500);
    const std::vector<float> x = make_values(count, round % 7, random);
    const codec::Codec codec({1, k}, DType::f32);
    const Frame frame = encode(codec, Values(codec.working(), x), nullptr, false);
    const std::size_t selected = selected_of(k, count);
    const auto expected = by_sorting(x, selected);
    ASSERT_EQ(indices(frame, count, selected), expected) << "round " << round << " kind " << round % 7 << " k " << k;
    const Values decoded = decode(codec, frame, count, nullptr, false);
    for (std::size_t i = 0, j = 0; i < count; ++i) {
      const bool is_selected = j < selected && expected[j] == i;
      j += is_selected ? 1 : 0;
      ASSERT_EQ(decoded[i], is_selected ? static_cast<double>(x[i]) : 0.0) << i;
    }
  }
}

TEST(TopK, SelectsF64ByItsOwnBits) {
  const codec::Codec codec(CodecSpec::parse("topk(1/4096)+exact"), DType::f64);
  Values values(codec.working(), 100);
  for (std::size_t i = 0; i < 100; ++i) {
    values.set(i, 1.0);
  }
  values.set(61, -(1.0 + 0x1p-50));  // equal in f32
  const Values decoded = decode(codec, encode(codec, values), 100);
  EXPECT_EQ(decoded[61], values[61]);
  EXPECT_EQ(decoded.count_below(0), 1U);
}

TEST(TopK, SelectedCountOfShortTiles) {
  for (const std::uint32_t k : {1U, 41U, 410U, 4096U}) {
    for (std::uint32_t count = 1; count <= 4096; ++count) {
      const std::uint32_t selected = kernels::selected_count(k, count);
      ASSERT_EQ(selected, selected_of(k, count));
      ASSERT_TRUE(selected >= 1 && selected <= count);
    }
  }
  EXPECT_EQ(kernels::selected_count(41, 0), 0U);
}

TEST(TopK, IndexBytesAsDocumented) {
  const codec::Codec codec(CodecSpec::parse("topk(3/4096)+sign"), DType::f32);
  std::vector<float> x(4096, 0.0F);
  x[0x123] = 2.0F;
  x[0x456] = -2.0F;
  x[0xABC] = 2.0F;
  const auto payload = encode(codec, Values(codec.working(), x)).payload();
  // l = 10: bits 0, 2, 4 of a run of 6 stand for the upper parts 0, 1, 2; then 0x123, 0x056, 0x2BC; S = 2; the signs.
  const std::vector<int> expected{0xD5, 0x48, 0x56, 0xF0, 0x0A, 0x00, 0x40, 0x02};
  ASSERT_EQ(payload.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(payload[i]), expected[i]) << i;
  }
}

TEST(TopK, ResidualKeepsWhatIsDroppedAndTheErrorOfWhatIsSelected) {
  for (const char* spec : {"topk(41/4096)+int8", "topk(10%)+int2", "topk(100%)+fp8", "topk(1/4096)+exact"}) {
    SCOPED_TRACE(spec);
    const codec::Codec codec(CodecSpec::parse(spec), DType::f32);
    const std::vector<float> x = gauss(4096, 402);
    std::vector<float> residual(x.size(), 0.5F);
    const Frame frame = encode(codec, Values(codec.working(), x), &residual);
    const Values decoded = decode(codec, frame, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(residual[i], x[i] + 0.5F - static_cast<float>(decoded[i])) << i;
    }
  }
}

// NaN and Inf come first; the whole tile keeps its residual, the next one does not.
TEST(TopK, NonfiniteValuesAreSelectedAndLeaveTheTilesResidual) {
  const codec::Codec codec(CodecSpec::parse("topk(41/4096)+int8"), DType::f32);
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> x = gauss(2 * 4096, 403);
    x[77] = FLT_MAX;
    x[3000] = bad;
    std::vector<float> residual(x.size(), 0.5F);
    const Frame frame = encode(codec, Values(codec.working(), x), &residual);
    EXPECT_TRUE(frame.nonfinite);
    const auto selected = indices(frame, 4096, 41);
    EXPECT_TRUE(std::ranges::binary_search(selected, 3000U));
    const Values decoded = decode(codec, frame, x.size());
    EXPECT_TRUE(std::isnan(decoded[3000]) && std::isnan(decoded[77]));
    EXPECT_EQ(decoded[3001], 0);
    EXPECT_TRUE(std::all_of(residual.begin(), residual.begin() + 4096, [](float r) { return r == 0.5F; }));
    EXPECT_FALSE(std::any_of(residual.begin() + 4096, residual.end(), [](float r) { return r == 0.5F; }));
  }
}

}  // namespace
}  // namespace gradwire::test
