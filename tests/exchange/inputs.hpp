// Defines inputs and expected results of the collective tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/tensor_list.hpp"
#include "gradwire/communicator.hpp"

namespace gradwire::test {

/// Elements of some dtype that are set and read as doubles.
class Values {
 public:
  Values(DType dtype, std::uint64_t count)
      : dtype_(dtype), count_(count), bytes_(count * element_bytes(dtype) + kGuard, kFill) {}
  explicit Values(DType dtype, std::span<const double> values) : Values(dtype, values.size()) {
    // Converts from f64 to dtype, as a session would read a tensor of doubles.
    codec::TensorList list(dtype, dtype == DType::f64 ? codec::Working::f64 : codec::Working::f32);
    list.append(nullptr, bytes_.data(), values.size());
    std::vector<float> floats(values.begin(), values.end());
    for (std::uint64_t i = 0; i < count_; i += codec::kTileElements) {
      const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, count_ - i));
      list.store(i, n,
                 dtype == DType::f64 ? static_cast<const void*>(values.data() + i)
                                     : static_cast<const void*>(floats.data() + i));
    }
  }

  [[nodiscard]] View view() { return {bytes_.data(), count_, dtype_}; }
  [[nodiscard]] std::vector<double> doubles() const {
    std::vector<double> out(count_);
    codec::TensorList list(dtype_, dtype_ == DType::f64 ? codec::Working::f64 : codec::Working::f32);
    list.append(bytes_.data(), nullptr, count_);
    std::vector<double> scratch(codec::kTileElements);
    for (std::uint64_t i = 0; i < count_; i += codec::kTileElements) {
      const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, count_ - i));
      const void* values = list.load(i, n, scratch.data());
      for (std::uint32_t j = 0; j < n; ++j) {
        out[i + j] =
            dtype_ == DType::f64 ? static_cast<const double*>(values)[j] : static_cast<const float*>(values)[j];
      }
    }
    return out;
  }
  [[nodiscard]] std::string bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size() - kGuard};
  }
  /// Returns whether nothing was written past the end.
  [[nodiscard]] bool guarded() const {
    for (std::size_t i = bytes_.size() - kGuard; i < bytes_.size(); ++i) {
      if (bytes_[i] != kFill) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kFill{0xA5};
  DType dtype_;
  std::uint64_t count_;
  std::vector<std::byte> bytes_;
};

/// Returns small integers: sums over up to 128 ranks are exact in every dtype.
inline std::vector<double> integers(std::uint64_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + 17U);
  std::vector<double> values(count);
  for (double& value : values) {
    value = static_cast<double>(static_cast<int>(random() % 9) - 4);
  }
  return values;
}

inline std::vector<double> gaussian(std::uint64_t count, int rank, double scale = 0.01) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000003U + count);
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(count);
  for (double& value : values) {
    value = static_cast<double>(static_cast<float>(normal(random)));
  }
  return values;
}

inline double relative_error(std::span<const double> got, std::span<const double> wanted) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

/// Returns the relative error of encoding `values` once: the yardstick for a codec that a test does not name.
inline double single_encoding_error(const codec::Codec& codec, std::span<const double> values) {
  if (values.empty()) {
    return 0;
  }
  Values in(DType::f32, values);
  Values out(DType::f32, values.size());
  const codec::Codec f32(codec.spec(), DType::f32);
  codec::TensorList list(DType::f32, codec::Working::f32);
  list.append(in.view().data, out.view().data, values.size());
  std::vector<std::byte> frame(f32.frame_bytes(values.size()));
  const codec::FrameInfo info{.count = static_cast<std::uint32_t>(values.size())};
  codec::FrameWriter writer(f32, info, false, frame);
  std::vector<float> scratch(codec::kTileElements);
  const auto tiles = [&](auto&& body) {
    for (std::uint64_t i = 0; i < values.size(); i += codec::kTileElements) {
      body(i, static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, values.size() - i)));
    }
  };
  tiles([&](std::uint64_t first, std::uint32_t n) { writer.write(list.load(first, n, scratch.data()), nullptr, n); });
  (void)writer.finish();
  codec::FrameReader reader(f32, info, false, std::span(frame).first(writer.bytes()), 0);
  tiles([&](std::uint64_t first, std::uint32_t n) {
    void* to = list.target(first, n, scratch.data());
    reader.read(to, n);
    list.store(first, n, to);
  });
  return relative_error(out.doubles(), values);
}

/// Returns the weight of a rank in calls with weights.
inline double weight_of(int rank) { return 1 + 0.5 * rank; }

}  // namespace gradwire::test
