// The roundings of the format, in integer arithmetic or in operations that IEEE 754 fixes, so that every machine
// agrees. They need round-to-nearest and no flushing of denormals, which the callers in src/codec set. On a GPU integer
// arithmetic takes many times as long as its own conversions, which give the same bits except for those of a NaN.
#ifndef GRADWIRE_KERNELS_NUMERIC_HPP
#define GRADWIRE_KERNELS_NUMERIC_HPP

#include "kernels/platform.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kAbsMask = 0x7FFFFFFFU;
inline constexpr std::uint32_t kInfinity = 0x7F800000U;  // also: every |x| from here up is Inf or NaN
inline constexpr std::uint32_t kSmallestNormal = 0x00800000U;
inline constexpr std::uint16_t kNanBf16 = 0x7FC0U;
inline constexpr std::uint16_t kNanF16 = 0x7E00U;

/// The bits of |x|; ordered like |x|, with Inf and NaN on top.
GRADWIRE_HOST_DEVICE inline std::uint32_t abs_bits(float x) { return bits_as<std::uint32_t>(x) & kAbsMask; }

/// Nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves it in the low bits.
GRADWIRE_HOST_DEVICE inline std::int32_t round_to_int(float x) {
  return bits_as<std::int32_t>(x + 12582912.0F) - 0x4B400000;
}

/// Rounds to nearest, ties to even; values beyond the largest finite one become Inf. Every NaN becomes 0x7FC0, so that
/// its sign and payload, which differ between machines, do not reach the wire.
GRADWIRE_HOST_DEVICE inline std::uint16_t to_bf16(float x) {
#if defined(__CUDA_ARCH__)
  std::uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
  return x != x ? kNanBf16 : rounded;
#else
  const auto bits = bits_as<std::uint32_t>(x);
  if ((bits & kAbsMask) > kInfinity) {
    return kNanBf16;
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
#endif
}

GRADWIRE_HOST_DEVICE inline float from_bf16(std::uint16_t bits) {
  return bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The smallest bf16 not below x, for finite x >= 0. Scales are normal numbers or 0: the result is 0 where it would be
/// denormal, and the largest finite bf16 where it would be Inf.
GRADWIRE_HOST_DEVICE inline std::uint16_t scale_round_up(float x) {
  const std::uint32_t up = (bits_as<std::uint32_t>(x) + 0xFFFFU) >> 16;
  return static_cast<std::uint16_t>(up < 0x0080U ? 0U : (up > 0x7F7FU ? 0x7F7FU : up));
}

/// 2^floor(log2(x)) as bf16 for x = bits_as<float>(bits), finite and >= 0; 0 where x is denormal or 0.
GRADWIRE_HOST_DEVICE inline std::uint16_t scale_power_of_two(std::uint32_t bits) {
  return static_cast<std::uint16_t>((bits >> 16) & 0x7F80U);
}

/// 2^-floor(log2(x)) for x = bits_as<float>(bits), normal and finite.
GRADWIRE_HOST_DEVICE inline float inverse_power_of_two(std::uint32_t bits) {
  const std::uint32_t exponent = bits >> 23;
  return bits_as<float>(exponent == 254 ? 0x00400000U : (254 - exponent) << 23);  // 2^-127 is denormal
}

/// The scale x * 2^floor(log2(y)) rounded to 8 significant bits, for y = bits_as<float>(bits), normal and finite, and x
/// >= 0 not near the ends of the range. It is 0 where the result is below the normal numbers, and the largest finite
/// bf16 where it is above them.
GRADWIRE_HOST_DEVICE inline std::uint16_t scale_nearest(float x, std::uint32_t bits) {
  const std::uint32_t nearest = to_bf16(x);
  const std::int32_t exponent = static_cast<std::int32_t>((nearest >> 7) + (bits >> 23)) - 127;
  if (nearest < 0x0080U || exponent < 1) {
    return 0;
  }
  return exponent > 254 ? std::uint16_t{0x7F7F}
                        : static_cast<std::uint16_t>(static_cast<std::uint32_t>(exponent) << 7 | (nearest & 0x7FU));
}

/// Rounds to nearest, ties to even; values beyond the largest finite one become Inf, and every NaN becomes 0x7E00.
GRADWIRE_HOST_DEVICE inline std::uint16_t to_f16(float x) {
#if defined(__CUDA_ARCH__)
  std::uint16_t rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
  return x != x ? kNanF16 : rounded;
#else
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & kAbsMask;
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  if (magnitude > kInfinity) {
    return kNanF16;
  }
  if (magnitude >= 0x47800000U) {  // 65536 and above
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24, which is the last place of 0.5
    return static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
#endif
}

/// The conversion is exact. A NaN keeps its sign and payload, except on some devices.
GRADWIRE_HOST_DEVICE inline float from_f16(std::uint16_t half) {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
#else
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
  if (magnitude >= 0x0F800000U) {  // Inf, NaN
    return bits_as<float>(sign | (magnitude + 0x70000000U));
  }
  // As an f32 these bits are the value times 2^-112, denormals included.
  return bits_as<float>(sign | bits_as<std::uint32_t>(bits_as<float>(magnitude) * 0x1p112F));
#endif
}

/// FP8 e4m3 without Inf (e4m3fn): 1 sign bit, 4 of exponent with bias 7, 3 of mantissa; +-0x7F is NaN, 448 the largest.
/// Rounds to nearest, ties to even, for |x| below 464.
GRADWIRE_HOST_DEVICE inline std::uint8_t to_e4m3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(x));
  return static_cast<std::uint8_t>(pair);
#else
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & kAbsMask;
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  if (magnitude < 0x3C800000U) {  // below 2^-6: a multiple of 2^-9, which is the last place of 2^14
    return static_cast<std::uint8_t>(sign |
                                     (bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0x1p14F) - 0x46800000U));
  }
  const std::uint32_t rounded = magnitude - 0x3C000000U + 0x7FFFFU + ((magnitude >> 20) & 1U);
  return static_cast<std::uint8_t>(sign | (rounded >> 20));
#endif
}

/// The conversion is exact.
GRADWIRE_HOST_DEVICE inline float from_e4m3(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == 0x7FU) {
    return bits_as<float>(sign | 0x7FC00000U);
  }
  // As an f32 these bits are the value times 2^-120, denormals included.
  return bits_as<float>(sign | bits_as<std::uint32_t>(bits_as<float>(magnitude << 20) * 0x1p120F));
}

/// Converts both codes of a pair, the low byte first.
GRADWIRE_HOST_DEVICE inline void from_e4m3(std::uint16_t pair, float& first, float& second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  first = from_f16(static_cast<std::uint16_t>(halves));
  second = from_f16(static_cast<std::uint16_t>(halves >> 16));
#else
  first = from_e4m3(static_cast<std::uint8_t>(pair));
  second = from_e4m3(static_cast<std::uint8_t>(pair >> 8));
#endif
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_NUMERIC_HPP
