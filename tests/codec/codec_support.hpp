// Shared by the codec tests: every (codec, tensor dtype) of this build as a test parameter, encoding and decoding of
// whole frames, and buffers with guards.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "codec/codec.hpp"
#include "codec/registry.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {

inline constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

/// One registered codec over one tensor dtype, by itself or behind topk.
struct Case {
  const codec::CodecEntry* entry;
  DType dtype;
  std::uint16_t k = 0;

  [[nodiscard]] CodecSpec spec() const { return {entry->id, k}; }
  [[nodiscard]] codec::Codec codec() const { return codec::Codec(spec(), dtype); }
};

/// Returns every codec over every dtype, and behind topk over f32, and for exact codecs over the others too. (Lossy
/// codecs have one core for all dtypes.)
inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const DType dtype : kDTypes) {
      cases.push_back({&entry, dtype});
    }
  }
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const std::uint16_t k : {1, 41, 410, 4096}) {
      cases.push_back({&entry, DType::f32, k});
    }
    for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
      if (!entry.lossy) {
        cases.push_back({&entry, dtype, 41});
      }
    }
  }
  return cases;
}

inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const std::string selector = info.param.k == 0 ? "" : "topk" + std::to_string(info.param.k) + "_";
  return selector + std::string(info.param.entry->name) + "_" + std::string(to_string(info.param.dtype));
}

/// Working values of either type, with one interface.
class Values {
 public:
  Values(codec::Working type, std::size_t count)
      : type_(type), f32_(is_f64() ? 0 : count), f64_(is_f64() ? count : 0) {}
  Values(codec::Working type, const std::vector<float>& from) : Values(type, from.size()) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      set(i, from[i]);
    }
  }

  [[nodiscard]] bool is_f64() const { return type_ == codec::Working::f64; }
  [[nodiscard]] std::size_t size() const { return is_f64() ? f64_.size() : f32_.size(); }
  [[nodiscard]] double operator[](std::size_t i) const { return is_f64() ? f64_[i] : static_cast<double>(f32_[i]); }
  void set(std::size_t i, double x) {
    if (is_f64()) {
      f64_[i] = x;
    } else {
      f32_[i] = static_cast<float>(x);
    }
  }
  [[nodiscard]] void* at(std::size_t i) { return is_f64() ? static_cast<void*>(&f64_[i]) : &f32_[i]; }
  [[nodiscard]] const void* at(std::size_t i) const {
    return is_f64() ? static_cast<const void*>(f64_.data() + i) : f32_.data() + i;
  }
  [[nodiscard]] std::size_t count_below(double limit) const {
    const auto below = [limit](auto x) { return x < limit; };
    return static_cast<std::size_t>(is_f64() ? std::count_if(f64_.begin(), f64_.end(), below)
                                             : std::count_if(f32_.begin(), f32_.end(), below));
  }
  /// Compares bit by bit; NaN equals NaN.
  [[nodiscard]] bool same(const Values& other) const {
    return is_f64() ? same_bits(f64_, other.f64_) : same_bits(f32_, other.f32_);
  }

 private:
  template <class T>
  static bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](T x, T y) {
             return (std::isnan(x) && std::isnan(y)) || std::bit_cast<Bits>(x) == std::bit_cast<Bits>(y);
           });
  }

  codec::Working type_;
  std::vector<float> f32_;
  std::vector<double> f64_;
};

struct Frame {
  std::vector<std::byte> bytes;
  bool nonfinite = false;

  [[nodiscard]] std::vector<std::byte> payload() const { return {bytes.begin() + wire::kHeaderBytes, bytes.end()}; }
};

inline codec::FrameInfo info_for(std::size_t count, std::uint32_t first_tile = 0) {
  codec::FrameInfo info;
  info.count = static_cast<std::uint32_t>(count);
  info.first_tile = first_tile;
  info.bucket = 3;
  info.step = 17;
  return info;
}

template <class Body>
void for_each_tile(std::size_t count, Body body) {
  for (std::size_t first = 0; first < count; first += codec::kTileElements) {
    body(first, static_cast<std::uint32_t>(std::min<std::size_t>(codec::kTileElements, count - first)));
  }
}

/// Encodes elements [first, first + count) of `values`; `residual` is null or as long as `values`. Fails the test if
/// anything is written outside of the frame.
inline Frame encode(const codec::Codec& codec, const Values& values, std::vector<float>* residual = nullptr,
                    bool checksum = true, std::size_t first = 0, std::size_t count = std::size_t(-1)) {
  constexpr std::size_t kGuard = 64;
  constexpr std::byte kMark{0xA5};
  count = std::min(count, values.size() - first);
  const std::size_t bytes = codec.frame_bytes(count);
  std::vector<std::byte> buffer(bytes + 2 * kGuard, kMark);
  const auto info = info_for(count, static_cast<std::uint32_t>(first / codec::kTileElements));
  codec::FrameWriter writer(codec, info, checksum, std::span(buffer).subspan(kGuard, bytes));
  for_each_tile(count, [&](std::size_t i, std::uint32_t n) {
    writer.write(values.at(first + i), residual == nullptr ? nullptr : residual->data() + first + i, n);
  });
  Frame frame;
  frame.nonfinite = writer.finish();
  const auto untouched = [&](auto begin, auto end) {
    return std::all_of(begin, end, [](std::byte b) { return b == kMark; });
  };
  EXPECT_TRUE(untouched(buffer.begin(), buffer.begin() + kGuard)) << "written before the frame";
  EXPECT_TRUE(untouched(buffer.end() - kGuard, buffer.end())) << "written after the frame";
  const auto begin = buffer.begin() + kGuard;
  frame.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(writer.bytes()));
  return frame;
}

/// Decodes the frame into new values, or adds it to `onto`.
inline Values decode(const codec::Codec& codec, const Frame& frame, std::size_t count, const Values* onto = nullptr,
                     bool checksum = true, std::uint32_t first_tile = 0) {
  Values values = onto != nullptr ? *onto : Values(codec.working(), count);
  codec::FrameReader reader(codec, info_for(count, first_tile), checksum, frame.bytes, 1);
  EXPECT_EQ(reader.nonfinite(), frame.nonfinite);
  for_each_tile(count, [&](std::size_t i, std::uint32_t n) {
    onto != nullptr ? reader.add(values.at(i), n) : reader.read(values.at(i), n);
  });
  return values;
}

inline std::vector<float> gauss(std::size_t count, unsigned seed, double scale = 1.0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<float> values(count);
  for (float& x : values) {
    x = static_cast<float>(normal(random));
  }
  return values;
}

}  // namespace gradwire::test
