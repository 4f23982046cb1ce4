// Tests tiles that are read from and written to tensors at any address, in any dtype.
#include "codec/tensor_list.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "codec_support.hpp"
#include "gradwire/error.hpp"
#include "kernels/elements.hpp"

namespace gradwire::test {
namespace {

using codec::TensorList;
using codec::Working;

using Scratch = std::array<double, codec::kTileElements>;

bool same_bytes(const void* a, const void* b, std::size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

TEST(TensorList, PointsIntoATensorWhereItCan) {
  std::vector<float> in = gauss(10000, 71);
  std::vector<float> out(10000);
  TensorList list(DType::f32, Working::f32);
  list.append(in.data(), out.data(), in.size());
  Scratch scratch;
  EXPECT_EQ(list.count(), 10000U);
  EXPECT_EQ(list.bytes(), 40000U);
  EXPECT_EQ(list.load(4096, 4096, scratch.data()), in.data() + 4096);
  EXPECT_EQ(list.target(4096, 4096, scratch.data()), out.data() + 4096);
  EXPECT_EQ(list.load_verbatim(1, 9, scratch.data()), in.data() + 1);
  EXPECT_EQ(list.target_verbatim(1, 9, scratch.data()), out.data() + 1);
}

TEST(TensorList, GathersAndScattersAcrossTensors) {
  const std::vector<float> values = gauss(6000, 72);
  const std::size_t cuts[] = {0, 1, 4, 1000, 1000, 4097, 6000};
  std::vector<std::vector<float>> in;
  std::vector<std::vector<float>> out;
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
    in.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(cuts[i]),
                    values.begin() + static_cast<std::ptrdiff_t>(cuts[i + 1]));
    out.emplace_back(in.back().size(), 0.0F);
  }
  TensorList list(DType::f32, Working::f32);
  for (std::size_t i = 0; i < in.size(); ++i) {
    list.append(in[i].data(), out[i].data(), in[i].size());
  }
  ASSERT_EQ(list.count(), 6000U);
  Scratch scratch;
  for (std::size_t first = 0; first < 6000; first += 997) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(4096, 6000 - first));
    const auto* got = static_cast<const float*>(list.load(first, count, scratch.data()));
    ASSERT_TRUE(std::equal(got, got + count, values.begin() + static_cast<std::ptrdiff_t>(first))) << first;
  }
  for_each_tile(6000, [&](std::size_t first, std::uint32_t count) {
    void* target = list.target(first, count, scratch.data());
    std::memcpy(target, values.data() + first, count * sizeof(float));
    list.store(first, count, target);
  });
  EXPECT_EQ(out, in);
}

TEST(TensorList, NullInputIsZeroAndNullOutputIsDropped) {
  std::vector<float> in(10, 3.0F);
  std::vector<float> out(10, 7.0F);
  TensorList list(DType::f32, Working::f32);
  list.append(nullptr, out.data(), 10);
  list.append(in.data(), nullptr, 10);
  Scratch scratch;
  const auto* got = static_cast<const float*>(list.load(5, 10, scratch.data()));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(got[i], i < 5 ? 0.0F : 3.0F);
  }
  EXPECT_EQ(list.target(12, 3, scratch.data()), scratch.data());
  list.store(5, 10, got);
  EXPECT_EQ(out, (std::vector<float>{7, 7, 7, 7, 7, 0, 0, 0, 0, 0}));
  EXPECT_EQ(in, std::vector<float>(10, 3.0F));
}

TEST(TensorList, MisalignedTensorsGoThroughScratch) {
  std::vector<std::byte> memory(4 * 100 + 1);
  auto* odd = memory.data() + 1;
  const std::vector<float> values = gauss(100, 73);
  std::memcpy(odd, values.data(), 400);
  TensorList list(DType::f32, Working::f32);
  list.append(odd, odd, 100);
  Scratch scratch;
  ASSERT_EQ(list.load(0, 100, scratch.data()), scratch.data());
  EXPECT_TRUE(same_bytes(scratch.data(), values.data(), 400));
  EXPECT_EQ(list.target(0, 100, scratch.data()), scratch.data());
  std::memset(odd, 0, 400);
  list.store(0, 100, scratch.data());
  EXPECT_TRUE(same_bytes(odd, values.data(), 400));
}

template <DType kType, class Narrow>
void expect_16_bit(Narrow narrow) {
  std::vector<std::uint16_t> stored(70000);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    stored[i] = static_cast<std::uint16_t>(i);
  }
  std::vector<std::uint16_t> out(stored.size());
  TensorList list(kType, Working::f32);
  list.append(stored.data(), out.data(), 30001);
  list.append(stored.data() + 30001, out.data() + 30001, stored.size() - 30001);
  Scratch scratch;
  std::vector<std::uint16_t> verbatim(4096);
  for_each_tile(stored.size(), [&](std::size_t first, std::uint32_t count) {
    const auto* got = static_cast<const float*>(list.load(first, count, scratch.data()));
    for (std::size_t i = 0; i < count; ++i) {
      const float expected = kernels::Element<kType>::value(stored[first + i]);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(expected)) << first + i;
    }
    list.store(first, count, got);
    const auto* same = static_cast<const std::uint16_t*>(list.load_verbatim(first, count, verbatim.data()));
    ASSERT_TRUE(std::equal(same, same + count, stored.data() + first));
  });
  for (std::size_t i = 0; i < stored.size(); ++i) {
    ASSERT_EQ(out[i], narrow(kernels::Element<kType>::value(stored[i]))) << i;
  }
}

TEST(TensorList, ConvertsEvery16BitValue) {
  expect_16_bit<DType::f16>(kernels::to_f16);
  expect_16_bit<DType::bf16>(kernels::to_bf16);
}

TEST(TensorList, ConvertsF64) {
  const std::vector<double> in{0.1, -0.0, 1e300, -1e300, 1e-300, 1e-40, 16777217.0, 16777219.0};
  std::vector<double> out(in.size());
  TensorList narrow(DType::f64, Working::f32);
  narrow.append(in.data(), out.data(), in.size());
  Scratch scratch;
  const auto* got = static_cast<const float*>(narrow.load(0, 8, scratch.data()));
  EXPECT_EQ(got, static_cast<const void*>(scratch.data()));
  EXPECT_EQ(got[0], 0.1F);
  EXPECT_TRUE(std::signbit(got[1]));
  EXPECT_EQ(got[2], HUGE_VALF);
  EXPECT_EQ(got[3], -HUGE_VALF);
  EXPECT_EQ(got[4], 0.0F);
  EXPECT_EQ(got[5], 1e-40F);
  EXPECT_EQ(got[6], 16777216.0F);  // ties to even
  EXPECT_EQ(got[7], 16777220.0F);
  narrow.store(0, 8, got);
  EXPECT_EQ(out[0], static_cast<double>(0.1F));

  TensorList whole(DType::f64, Working::f64);
  whole.append(in.data(), out.data(), in.size());
  EXPECT_EQ(whole.load(2, 3, scratch.data()), in.data() + 2);
}

TEST(TensorList, InPlaceStoreTouchesNothing) {
  std::vector<float> data = gauss(100, 74);
  TensorList list(DType::f32, Working::f32);
  list.append(data.data(), data.data(), data.size());
  Scratch scratch;
  const auto before = data;
  list.store(10, 50, list.load(10, 50, scratch.data()));
  EXPECT_EQ(data, before);
}

TEST(TensorList, ManyTensors) {
  std::vector<float> data = gauss(20000, 75);
  TensorList list(DType::f32, Working::f32);
  for (std::size_t i = 0; i < data.size(); ++i) {
    list.append(data.data() + i, nullptr, 1);
  }
  Scratch scratch;
  const auto* got = static_cast<const float*>(list.load(15000, 4096, scratch.data()));
  EXPECT_TRUE(std::equal(got, got + 4096, data.data() + 15000));
}

TEST(TensorList, Misuse) {
  float x = 0;
  TensorList list(DType::f32, Working::f32);
  list.append(&x, &x, 1);
  Scratch scratch;
  EXPECT_EQ(list.load(1, 0, scratch.data()), scratch.data());
  EXPECT_THROW((void)list.load(1, 1, scratch.data()), Error);
  EXPECT_THROW((void)list.load(0, 2, scratch.data()), Error);
  EXPECT_THROW((void)list.load(std::uint64_t(-1), 2, scratch.data()), Error);
  EXPECT_THROW(TensorList(DType::f32, Working::f64), Error);
}

TEST(Arithmetic, RoundsOnceInTheWorkingType) {
  std::vector<float> a = gauss(1000, 76);
  const std::vector<float> b = gauss(1000, 77);
  std::vector<float> sum = a;
  std::vector<float> product(1000);
  std::vector<float> quotient = a;
  codec::add(Working::f32, sum.data(), b.data(), 1000);
  codec::multiply(Working::f32, a.data(), 0.1, product.data(), 1000);
  codec::divide(Working::f32, quotient.data(), 3.0, 1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(sum[i], a[i] + b[i]);
    ASSERT_EQ(product[i], a[i] * 0.1F);
    ASSERT_EQ(quotient[i], a[i] / 3.0F);
  }
  double x = 1;
  const double y = 1e-12;
  codec::add(Working::f64, &x, &y, 1);
  EXPECT_EQ(x, 1 + 1e-12);
  codec::divide(Working::f64, &x, 7.0, 1);
  EXPECT_EQ(x, (1 + 1e-12) / 7);
  codec::multiply(Working::f64, &x, 0.1, &x, 1);
  EXPECT_EQ(x, (1 + 1e-12) / 7 * 0.1);
  codec::add(Working::f32, nullptr, nullptr, 0);
}

// Division by a power of two is done by multiplication.
TEST(Arithmetic, PowersOfTwoDivideAlike) {
  std::vector<float> values = gauss(1000, 78);
  for (std::size_t i = 0; i < 300; ++i) {
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 28'111));  // denormals and small numbers
  }
  values[300] = std::numeric_limits<float>::infinity();
  values[301] = -0.0F;
  values[302] = std::numeric_limits<float>::max();
  for (const float divisor : {1.0F, 2.0F, 4.0F, 1024.0F, 0.5F, 0x1p-40F, 0x1p120F, 3.0F, 6.0F}) {
    std::vector<float> quotient = values;
    codec::divide(Working::f32, quotient.data(), divisor, quotient.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(quotient[i]), std::bit_cast<std::uint32_t>(values[i] / divisor))
          << values[i] << " / " << divisor;
    }
  }
}

TEST(Arithmetic, FindsWhatIsNotFiniteAnywhere) {
  const auto found = [](auto one, auto bad, DType dtype) {
    std::vector<decltype(one)> values(67, one);
    EXPECT_TRUE(codec::all_finite(dtype, values.data(), values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = bad;
      EXPECT_FALSE(codec::all_finite(dtype, values.data(), values.size())) << i;
      values[i] = one;
    }
  };
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    found(1.0F, bad, DType::f32);
    found(1.0, static_cast<double>(bad), DType::f64);
  }
  found(std::uint16_t{0x3C00}, std::uint16_t{0xFC00}, DType::f16);
  found(std::uint16_t{0x3F80}, std::uint16_t{0x7F80}, DType::bf16);
  EXPECT_TRUE(codec::all_finite(DType::f32, nullptr, 0));
}

}  // namespace
}  // namespace gradwire::test
