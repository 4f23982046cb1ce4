#include "codec/preconditioner.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "codec/float_environment.hpp"
#include "gradwire/error.hpp"

namespace gradwire::codec {
namespace {

// Signed, as SSE2 compares them.
constexpr std::int32_t kInfinity = 0x7F800000;
constexpr int kMantissaBits = 23;
constexpr std::int32_t kBias = 127;
constexpr std::int32_t kRoundsUp = 0x00800000 - 0x003504F3;  // from a mantissa of sqrt(2) on

// Biased, of the nearest power of two; 0 of what is not positive and finite. Without a branch: loops over it are SIMD.
inline std::int32_t exponent_of(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  const auto rounded = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x) + kRoundsUp) >> kMantissaBits;
  return rounded & -(static_cast<std::int32_t>(bits > 0) & static_cast<std::int32_t>(bits < kInfinity));
}

std::int32_t largest_of(const float* s, std::uint32_t count) {
  std::int32_t largest = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t exponent = exponent_of(s[i]);
    largest = exponent > largest ? exponent : largest;
  }
  return largest;
}

void reciprocals_of(const float* s, std::int32_t largest, std::uint32_t count, float* reciprocals) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t smaller = largest - exponent_of(s[i]);
    const std::int32_t power = smaller < Preconditioner::kMostSmaller ? smaller : Preconditioner::kMostSmaller;
    reciprocals[i] = std::bit_cast<float>((kBias + power) << kMantissaBits);
  }
}

}  // namespace

void Preconditioner::append(const float* diagonal, std::uint64_t count) {
  if (count > 0) {
    segments_.push_back({diagonal, count_, count});
    count_ += count;
  }
}

template <class Body>
void Preconditioner::for_each_piece(std::uint64_t first, std::uint32_t count, Body body) const {
  if (first > count_ || count > count_ - first) {
    throw Error(ErrorCode::internal, "preconditioner: " + std::to_string(count) + " elements from " +
                                         std::to_string(first) + " on, it has " + std::to_string(count_));
  }
  auto segment = std::ranges::upper_bound(segments_, first, {}, &Segment::first);
  segment -= segment == segments_.begin() ? 0 : 1;
  for (std::uint32_t done = 0; done < count; ++segment) {
    const std::uint64_t offset = first + done - segment->first;
    const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(count - done, segment->count - offset));
    body(segment->diagonal + offset, done, piece);
    done += piece;
  }
}

void Preconditioner::load_reciprocals(std::uint64_t first, std::uint32_t count, float* reciprocals) const {
  std::int32_t largest = 0;
  for_each_piece(first, count, [&](const float* s, std::uint32_t /*done*/, std::uint32_t piece) {
    largest = std::max(largest, largest_of(s, piece));
  });
  for_each_piece(first, count, [&](const float* s, std::uint32_t done, std::uint32_t piece) {
    reciprocals_of(s, largest, piece, reciprocals + done);
  });
}

void TileScale::load() {
  if (!loaded_) {
    of_->load_reciprocals(first_, count_, reciprocals_);
    loaded_ = true;
  }
}

void TileScale::divide(float* values) {
  if (of_ == nullptr) {
    return;
  }
  load();
  const FloatEnvironment environment;
  const float* reciprocals = reciprocals_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    values[i] *= reciprocals[i];
  }
}

void TileScale::multiply(float* values) {
  constexpr std::int32_t kOneTwice = 2 * (kBias << kMantissaBits);  // exponents change their sign
  if (of_ == nullptr) {
    return;
  }
  load();
  const FloatEnvironment environment;
  const float* reciprocals = reciprocals_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    values[i] *= std::bit_cast<float>(kOneTwice - std::bit_cast<std::int32_t>(reciprocals[i]));
  }
}

}  // namespace gradwire::codec
