// Stochastic rounding to bf16: up or down with a probability such that the mean of the result is the value.
#ifndef GRADWIRE_KERNELS_STOCHASTIC_BF16_HPP
#define GRADWIRE_KERNELS_STOCHASTIC_BF16_HPP

#include "kernels/rounding_bits.hpp"

namespace gradwire::kernels {

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

/// Rounds elements whose indices begin with `index`, and widens them again; the narrow ones are `count` elements.
struct StochasticBf16 {
  static void narrow(RoundingKey key, std::uint32_t index, const float* values, std::uint64_t count,
                     std::uint16_t* out) {
    for (std::uint64_t i = 0; i < count; ++i) {
      out[i] = to_bf16_stochastic(values[i], rounding_bits(key, index + static_cast<std::uint32_t>(i)));
    }
  }
  static void widen(const std::uint16_t* in, std::uint64_t count, float* values) {
    for (std::uint64_t i = 0; i < count; ++i) {
      values[i] = from_bf16(in[i]);
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_STOCHASTIC_BF16_HPP
