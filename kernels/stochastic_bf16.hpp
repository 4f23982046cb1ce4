// Stochastic rounding to bf16: up or down with a probability such that the mean of the result is the value. The random
// bits of an element are a pure function of a key and its index, so they depend neither on threads nor on tiles.
#ifndef GRADWIRE_KERNELS_STOCHASTIC_BF16_HPP
#define GRADWIRE_KERNELS_STOCHASTIC_BF16_HPP

#include "kernels/numeric.hpp"

namespace gradwire::kernels {

/// Two random words, one key for each use of an element.
struct RoundingKey {
  std::uint32_t word[2];
};

/// 16 random bits of an element; `index` is the low half of its index. A multiplicative hash in the manner of
/// MurmurHash3's finalizer.
GRADWIRE_HOST_DEVICE inline std::uint32_t rounding_bits(RoundingKey key, std::uint32_t index) {
  std::uint32_t hash = (index + key.word[0]) * 0x9E3779B1U;
  hash = ((hash ^ (hash >> 15)) ^ key.word[1]) * 0x85EBCA6BU;
  hash = (hash ^ (hash >> 13)) * 0xC2B2AE35U;
  return hash >> 16;
}

/// Rounds up in magnitude if the dropped bits and 16 random bits carry. A finite value stays finite; every NaN becomes
/// 0x7FC0.
GRADWIRE_HOST_DEVICE inline std::uint16_t to_bf16_stochastic(float x, std::uint32_t random) {
  constexpr std::uint32_t kMost = 0x7F7FFFFFU;  // of the sum for a finite value
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & kAbsMask;
  const std::uint32_t sum = magnitude + random;
  const std::uint32_t finite = sum < kMost ? sum : kMost;
  const std::uint32_t rounded = magnitude < kInfinity ? finite >> 16 : magnitude == kInfinity ? 0x7F80U : kNanBf16;
  return static_cast<std::uint16_t>(rounded | (magnitude > kInfinity ? 0U : (bits >> 16) & 0x8000U));
}

/// Rounds elements whose indices begin with `index`; `out` holds `count` elements, at any address.
struct StochasticBf16 {
  static void narrow(RoundingKey key, std::uint32_t index, const float* values, std::uint64_t count,
                     std::uint16_t* out) {
    for (std::uint64_t i = 0; i < count; ++i) {
      out[i] = to_bf16_stochastic(values[i], rounding_bits(key, index + static_cast<std::uint32_t>(i)));
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_STOCHASTIC_BF16_HPP
