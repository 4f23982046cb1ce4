// Stochastic rounding to int8: blocks of 64 elements share a scale, a power of two, and an element goes up or down with
// a probability such that the mean of the result is the value. What was rounded once stays when it is rounded again.
#ifndef GRADWIRE_KERNELS_STOCHASTIC_INT8_HPP
#define GRADWIRE_KERNELS_STOCHASTIC_INT8_HPP

#include "kernels/rounding_bits.hpp"

namespace gradwire::kernels {

/// A block is the biased exponent of its scale, and then a signed byte for each element. Zeros are zero bytes.
struct StochasticInt8 {
  static constexpr std::uint32_t kBlock = 64;
  static constexpr std::uint32_t kBlockBytes = kBlock + 1;
  static constexpr std::uint8_t kNotFinite = 255;  // the exponent of a block whose elements are all NaN
  // Below this scale denormals round to 0 anyway, whether or not the processor takes them for 0.
  static constexpr std::uint32_t kLeastExponent = 27;
  static constexpr std::uint32_t kMostExponent = 248;  // 127 times the next scale is infinite

  /// The exponent for elements of which none exceeds `most`, the bits of a magnitude: the least by which they are at
  /// most 127 times the scale.
  GRADWIRE_HOST_DEVICE static std::uint8_t exponent_of(std::uint32_t most) {
    if (most >= kInfinity) {
      return kNotFinite;
    }
    const std::uint32_t up = (most + 0x1FFFFU) >> 23;  // of the next power of two where more than 127/64 of this one
    const std::uint32_t fits = up < kLeastExponent + 6 ? kLeastExponent : up - 6;
    return static_cast<std::uint8_t>(most == 0 ? 0 : fits < kMostExponent ? fits : kMostExponent);
  }
  GRADWIRE_HOST_DEVICE static float scale_of(std::uint8_t exponent) {
    return bits_as<float>(exponent == kNotFinite ? 0x7FC00000U : std::uint32_t{exponent} << 23);
  }
  /// 1 / scale, for the exponent of a finite block that is not 0.
  GRADWIRE_HOST_DEVICE static float inverse_of(std::uint8_t exponent) {
    return bits_as<float>((254U - exponent) << 23);
  }

  static constexpr std::uint32_t kMostBits = 0x7F7E0000U;  // 127 times the largest scale, which larger values become
  static constexpr float kMost = 127 * 0x1p121F;

  // A sum from 256 to 512 holds 15 bits behind the point.
  static constexpr float kOffset = 384;
  static constexpr std::uint32_t kLeastSum = 0x43800000U;  // the bits of 256

  /// Rounds blocks; `index` is that of the first element, a multiple of kBlock.
  static void narrow(RoundingKey key, std::uint32_t index, const float* values, std::uint64_t blocks,
                     std::uint8_t* out) {
    for (; blocks > 0; --blocks, index += kBlock, values += kBlock, out += kBlockBytes) {
      std::uint32_t most = 0;
      for (std::uint32_t i = 0; i < kBlock; ++i) {
        most = most < abs_bits(values[i]) ? abs_bits(values[i]) : most;
      }
      out[0] = exponent_of(most);
      const bool sums = out[0] != kNotFinite && out[0] != 0;
      const float inverse = sums ? inverse_of(out[0]) : 0;
      for (std::uint32_t i = 0; i < kBlock; ++i) {
        const std::uint32_t random = rounding_bits(key, index + i) >> 1;
        const float x = abs_bits(values[i]) <= kMostBits ? values[i] : values[i] < 0 ? -kMost : kMost;
        const float sum = x * inverse + kOffset;  // the product is exact
        const std::uint32_t rounded = ((bits_as<std::uint32_t>(sum) + random - kLeastSum) >> 15) - 128U;
        out[1 + i] = static_cast<std::uint8_t>(sums ? rounded : out[0] == kNotFinite ? 1U : 0U);
      }
    }
  }
  static void widen(const std::uint8_t* in, std::uint64_t blocks, float* values) {
    for (; blocks > 0; --blocks, in += kBlockBytes, values += kBlock) {
      const float scale = scale_of(in[0]);
      for (std::uint32_t i = 0; i < kBlock; ++i) {
        values[i] = static_cast<float>(static_cast<std::int8_t>(in[1 + i])) * scale;
      }
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_STOCHASTIC_INT8_HPP
