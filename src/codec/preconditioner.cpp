#include "codec/preconditioner.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "codec/float_environment.hpp"
#include "gradwire/error.hpp"

namespace gradwire::codec {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000U;
constexpr std::uint32_t kMantissaBits = 23;
constexpr std::uint32_t kBias = 127;
constexpr std::uint32_t kRoundsUp = 0x00800000U - 0x003504F3U;  // from a mantissa of sqrt(2) on

// Biased, of the nearest power of two; 0 of what is not positive and finite.
std::uint32_t exponent_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return bits < kInfinity && bits != 0 ? (bits + kRoundsUp) >> kMantissaBits : 0U;
}

std::uint32_t smaller_by(float x, std::uint32_t largest) {
  return std::min(largest - exponent_of(x), Preconditioner::kMostSmaller);
}

float power_of_two(std::uint32_t biased) { return std::bit_cast<float>(biased << kMantissaBits); }

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

std::uint32_t Preconditioner::largest_exponent(std::uint64_t first, std::uint32_t count) const {
  std::uint32_t largest = 0;
  for_each_piece(first, count, [&](const float* s, std::uint32_t /*done*/, std::uint32_t piece) {
    for (std::uint32_t i = 0; i < piece; ++i) {
      largest = std::max(largest, exponent_of(s[i]));
    }
  });
  return largest;
}

void Preconditioner::divide(std::uint64_t first, std::uint32_t count, const float* values, float* out) const {
  const FloatEnvironment environment;
  const std::uint32_t largest = largest_exponent(first, count);
  for_each_piece(first, count, [&](const float* s, std::uint32_t done, std::uint32_t piece) {
    for (std::uint32_t i = 0; i < piece; ++i) {
      out[done + i] = values[done + i] * power_of_two(kBias + smaller_by(s[i], largest));
    }
  });
}

void Preconditioner::multiply(std::uint64_t first, std::uint32_t count, float* values) const {
  const FloatEnvironment environment;
  const std::uint32_t largest = largest_exponent(first, count);
  for_each_piece(first, count, [&](const float* s, std::uint32_t done, std::uint32_t piece) {
    for (std::uint32_t i = 0; i < piece; ++i) {
      values[done + i] *= power_of_two(kBias - smaller_by(s[i], largest));
    }
  });
}

}  // namespace gradwire::codec
