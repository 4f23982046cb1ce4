// Compares kernels without a codec with the host's tensors, residuals and arithmetic.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "device_support.hpp"
#include "kernels/array_hash.hpp"

namespace gradwire {
namespace {

using namespace test;

DType working_of(DType a, DType b) { return a == DType::f64 && b == DType::f64 ? DType::f64 : DType::f32; }

// Returns `tensor` as elements of `to`, converted through the working type, times factor, divided by divisor.
std::vector<std::byte> host_converted(const std::vector<std::byte>& tensor, DType from, DType to, double factor = 1,
                                      double divisor = 1) {
  const codec::Codec exact({1, 0}, working_of(from, to));  // for its working type
  Values values = working_values(exact, from, tensor);
  const std::size_t count = values.size();
  if (factor != 1) {
    codec::multiply(exact.working(), values.at(0), factor, values.at(0), count);
  }
  if (divisor != 1) {
    codec::divide(exact.working(), values.at(0), divisor, count);
  }
  std::vector<std::byte> out(count * element_bytes(to));
  codec::TensorList list(to, exact.working());
  list.append(nullptr, out.data(), count);
  for_each_tile(count, [&](std::size_t i, std::uint32_t n) { list.store(i, n, values.at(i)); });
  return out;
}

TEST(Convert, EveryPairOfDtypes) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      for (const std::size_t count : {1, 255, 2049}) {
        SCOPED_TRACE(testing::Message() << to_string(from) << " to " << to_string(to) << ", " << count);
        const std::vector<std::byte> tensor = as_tensor(from, inputs(count, 3, Kind::special));
        Memory in(tensor, element_bytes(from));
        Memory out(count * element_bytes(to), 2 * element_bytes(to));
        kernels::convert(in.data(), from, out.data(), to, count, 1.7, nullptr, 3, nullptr, nullptr);
        EXPECT_EQ(difference(to, out.bytes(), host_converted(tensor, from, to, 1.7, 3)), "");
      }
    }
  }
}

TEST(Convert, InPlaceByNumbersInDeviceMemory) {
  const std::vector<std::byte> tensor = as_tensor(DType::bf16, gauss(5000, 3));
  Memory values(tensor);
  const double divisor = 7;
  const double factor = 0.3;
  kernels::convert(values.data(), DType::bf16, values.data(), DType::bf16, 5000, 99, &factor, 99, &divisor, nullptr);
  EXPECT_EQ(difference(DType::bf16, values.bytes(), host_converted(tensor, DType::bf16, DType::bf16, 0.3, 7)), "");
  kernels::convert(values.data(), DType::bf16, nullptr, DType::bf16, 0, 1, nullptr, 1, nullptr, nullptr);
}

std::array<std::uint32_t, 2> device_hash(const std::vector<float>& values) {
  Memory elements(values, sizeof(float));
  std::array<std::uint32_t, 2> sums{5, 7};
  kernels::hash(elements.data(), values.size(), sums.data(), nullptr);
  return sums;
}

// Mutation tried: elements past the end count.
TEST(Hash, IsThatOfTheHostAndTellsArraysApart) {
  for (const std::size_t count : {0, 1, 255, 256, 3000, 20000}) {
    std::vector<float> values = gauss(count, 9);
    std::array<std::uint32_t, 2> wanted{5, 7};
    for (std::size_t i = 0; i < count; ++i) {
      for (std::uint32_t w = 0; w < 2; ++w) {
        wanted.at(w) += kernels::hash_word(std::bit_cast<std::uint32_t>(values[i]), i, w);
      }
    }
    EXPECT_EQ(device_hash(values), wanted) << count;
    if (count > 300) {
      std::swap(values[20], values[count - 5]);
      EXPECT_NE(device_hash(values)[0], wanted[0]);
      EXPECT_NE(device_hash(values)[1], wanted[1]);
      std::swap(values[20], values[count - 5]);
      values[count - 1] = std::nextafter(values[count - 1], 9.0F);
      EXPECT_NE(device_hash(values)[0], wanted[0]);
      EXPECT_NE(device_hash(values)[1], wanted[1]);
    }
  }
}

TEST(Fold, AddsTheResidualAndZeroesIt) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::size_t count : {0, 1, 300, 2049}) {
      std::vector<float> residual = gauss(count, 4);
      std::vector<float> x = gauss(count, 5);
      for (std::size_t i = 0; i < count; i += 3) {  // these keep their values and signs
        residual[i] = i % 2 == 0 ? 0.0F : -0.0F;
        x[i] = -0.0F;
      }
      Memory values(as_tensor(dtype, x));
      Memory kept(residual, 4);
      const double factor = 0.3;
      kernels::fold(kept.as<float>(), 5, &factor, values.data(), dtype, count, nullptr);
      EXPECT_EQ(kept.to<float>(), std::vector<float>(count, 0.0F));
      std::vector<double> wide(x.begin(), x.end());
      for (std::size_t i = 0; i < count; ++i) {
        if (residual[i] == 0) {
          continue;
        }
        x[i] = x[i] + static_cast<float>(factor) * residual[i];
        wide[i] = wide[i] + factor * static_cast<double>(residual[i]);
      }
      if (dtype == DType::f32) {
        EXPECT_EQ(difference(values.bytes(), Memory(x).bytes()), "");
      } else {
        EXPECT_EQ(difference(values.bytes(), Memory(wide).bytes()), "");
      }
    }
  }
}

// Tensors of many counts, some empty, with more pieces than one launch takes.
struct Bucket {
  explicit Bucket(DType dtype, bool with_missing) {
    for (std::size_t i = 0; i < 150; ++i) {
      const std::size_t count = i % 7 == 3 ? 0 : (i == 20 ? 5000 : 1 + (i * 37) % 290);
      tensors.emplace_back(as_tensor(dtype, inputs(count, static_cast<unsigned>(i), Kind::special)),
                           i % 3 * element_bytes(dtype));
      kernels::CopyPiece piece;
      piece.tensor = with_missing && i % 11 == 5 ? nullptr : tensors.back().data();
      piece.count = count;
      piece.offset = total;
      pieces.push_back(piece);
      total += count;
    }
  }
  std::vector<Memory> tensors;
  std::vector<kernels::CopyPiece> pieces;
  std::size_t total = 0;
};

TEST(Pieces, GatherLikeATensorList) {
  for (const auto& [tensors, run] : std::vector<std::pair<DType, DType>>{{DType::f32, DType::f32},
                                                                         {DType::f16, DType::f32},
                                                                         {DType::bf16, DType::bf16},
                                                                         {DType::f16, DType::f16},
                                                                         {DType::f64, DType::f64},
                                                                         {DType::f64, DType::f32}}) {
    SCOPED_TRACE(testing::Message() << to_string(tensors) << " to " << to_string(run));
    Bucket bucket(tensors, true);
    std::vector<std::byte> wanted;
    for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
      std::vector<std::byte> bytes = bucket.tensors[i].bytes();
      if (bucket.pieces[i].tensor == nullptr) {
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
      }
      const std::vector<std::byte> part = tensors == run ? bytes : host_converted(bytes, tensors, run);
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    Memory out(bucket.total * element_bytes(run));
    kernels::gather(bucket.pieces, tensors, out.data(), run, nullptr);
    EXPECT_EQ(tensors == run ? difference(out.bytes(), wanted) : difference(run, out.bytes(), wanted), "");
  }
}

TEST(Pieces, ScatterLikeATensorList) {
  for (const auto& [tensors, run] : std::vector<std::pair<DType, DType>>{
           {DType::f32, DType::f32}, {DType::f16, DType::f32}, {DType::bf16, DType::bf16}, {DType::f64, DType::f64}}) {
    SCOPED_TRACE(testing::Message() << to_string(tensors) << " from " << to_string(run));
    Bucket bucket(tensors, true);
    const std::vector<std::byte> values = as_tensor(run, inputs(bucket.total, 99, Kind::special));
    std::vector<std::vector<std::byte>> before;
    for (const Memory& tensor : bucket.tensors) {
      before.push_back(tensor.bytes());
    }
    Memory in(values);
    kernels::scatter(bucket.pieces, tensors, in.data(), run, nullptr);
    for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
      const auto& piece = bucket.pieces[i];
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(piece.offset * element_bytes(run));
      const std::vector<std::byte> part(begin, begin + static_cast<std::ptrdiff_t>(piece.count * element_bytes(run)));
      const std::vector<std::byte> wanted =
          piece.tensor == nullptr ? before[i] : (tensors == run ? part : host_converted(part, run, tensors));
      EXPECT_EQ(tensors == run ? difference(bucket.tensors[i].bytes(), wanted)
                               : difference(tensors, bucket.tensors[i].bytes(), wanted),
                "")
          << "tensor " << i;
    }
  }
}

TEST(Weights, AreSummedInOrder) {
  std::vector<double> weights(600);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = i == 0 ? 0x1p53 : 1.0;  // after 2^53 the order shows
  }
  std::vector<double> stored(weights.size());
  std::vector<const double*> pointers;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    kernels::store_weight(weights[i], &stored[i], nullptr);
    pointers.push_back(&stored[i]);
  }
  std::array<double, 3> totals{};
  kernels::sum_weights(pointers, 3, totals.data(), nullptr);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  EXPECT_EQ(totals, (std::array{sum, 1 / sum, 3 / sum}));
}

TEST(Weights, ThatCannotBeMakeNaN) {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights :
       {std::vector<double>{}, {0, 0}, {1, -1, 5}, {1, std::nan("")}, {1, infinite}, {1.7e308, 1.7e308}}) {
    std::vector<const double*> pointers;
    for (const double& weight : weights) {
      pointers.push_back(&weight);
    }
    std::array<double, 3> totals{};
    kernels::sum_weights(pointers, 1, totals.data(), nullptr);
    for (const double total : totals) {
      EXPECT_TRUE(std::isnan(total)) << testing::PrintToString(weights);
    }
  }
}

}  // namespace
}  // namespace gradwire
