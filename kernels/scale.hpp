// Rounds an element of a scale s (preconditioned encoding) to the nearest power of two, relative to the largest of its
// tile. So dividing by s and multiplying by it are exact, and a constant s changes no byte. Hosts and devices compile
// the same text.
#ifndef GRADWIRE_KERNELS_SCALE_HPP
#define GRADWIRE_KERNELS_SCALE_HPP

#include "kernels/platform.hpp"

namespace gradwire::kernels {

/// An element below 2^-kMostSmaller of the largest of its tile, or one that is not positive and finite, counts as
/// 2^-kMostSmaller of it.
inline constexpr std::int32_t kMostSmaller = 16;

inline constexpr std::int32_t kScaleMantissaBits = 23;
inline constexpr std::int32_t kScaleBias = 127;

/// The biased exponent of the power of two nearest to the float of these bits; 0 for a float that is not positive and
/// finite. It has no branch, so that loops over it are SIMD.
GRADWIRE_HOST_DEVICE inline std::int32_t scale_exponent(std::uint32_t bits) {
  constexpr std::int32_t kInfinityBits = 0x7F800000;              // signed, as SSE2 compares them
  constexpr std::uint32_t kRoundsUp = 0x00800000U - 0x003504F3U;  // rounds up from a mantissa of sqrt(2) on
  const auto x = static_cast<std::int32_t>(bits);
  const std::int32_t rounded = static_cast<std::int32_t>(bits + kRoundsUp) >> kScaleMantissaBits;
  return rounded & -(static_cast<std::int32_t>(x > 0) & static_cast<std::int32_t>(x < kInfinityBits));
}

/// The power, 0 to kMostSmaller, for which s is 2^-power of the largest of its tile.
GRADWIRE_HOST_DEVICE inline std::int32_t scale_power(std::int32_t largest, std::int32_t exponent) {
  const std::int32_t smaller = largest - exponent;
  return smaller < kMostSmaller ? smaller : kMostSmaller;
}

/// 1 / s for a power, and s.
GRADWIRE_HOST_DEVICE inline float scale_reciprocal(std::int32_t power) {
  return bits_as<float>((kScaleBias + power) << kScaleMantissaBits);
}
GRADWIRE_HOST_DEVICE inline float scale_itself(std::int32_t power) {
  return bits_as<float>((kScaleBias - power) << kScaleMantissaBits);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_SCALE_HPP
