// int4: rotated blocks of 256 on the 16 levels that are the best for a Gaussian (Lloyd-Max); after a selector, one
// block on 16 even levels, not rotated.
#ifndef GRADWIRE_KERNELS_INT4_HPP
#define GRADWIRE_KERNELS_INT4_HPP

#include "kernels/rotation.hpp"

namespace gradwire::kernels {

/// Kept values: a scale S = absmax/15 rounded up, then nibbles, element i in nibble i % 2 of byte i / 2; code c is the
/// level (2 c - 15) S.
struct KeptNibbles {
  using Value = float;
  static constexpr std::uint16_t kLargestScale = 0x7D88U;  // 15 S is finite

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t bytes(std::uint32_t count) { return 2 + (count + 1) / 2; }

  GRADWIRE_HOST_DEVICE static bool encode(const float* values, std::uint32_t count, std::uint8_t* out) {
    const std::uint32_t absmax = largest(Run{values, nullptr, count});
    const bool nonfinite = absmax >= kInfinity;
    const std::uint16_t scale_bits = nonfinite ? kNanBf16 : scale(absmax);
    store(out, 0, scale_bits);
    fill_zero(out + 2, (count + 1) / 2);
    if (nonfinite || scale_bits == 0) {
      return nonfinite;
    }
    const float inverse = 1.0F / from_bf16(scale_bits);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::int32_t q = round_to_int(values[i] * inverse * 0.5F + 7.5F);
      const std::uint32_t code = q < 0 ? 0U : (q > 15 ? 15U : static_cast<std::uint32_t>(q));
      std::uint8_t& byte = out[2 + i / 2];
      byte = static_cast<std::uint8_t>(byte | code << (i % 2 * 4));
    }
    return false;
  }

  GRADWIRE_HOST_DEVICE static void decode(const std::uint8_t* in, std::uint32_t count, float* values) {
    const float scale = from_bf16(load<std::uint16_t>(in, 0));
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::int32_t code = (in[2 + i / 2] >> (i % 2 * 4)) & 15;
      values[i] = static_cast<float>(2 * code - 15) * scale;
    }
  }

 private:
  GRADWIRE_HOST_DEVICE static std::uint16_t scale(std::uint32_t absmax) {
    const std::uint16_t up = scale_round_up(bits_as<float>(absmax) / 15.0F);
    return up > kLargestScale ? kLargestScale : up;
  }
};

struct Int4Grid {
  using Kept = KeptNibbles;
  static constexpr std::uint32_t kBits = 4;
  static constexpr std::uint32_t kCells = 8;  // of magnitudes

  GRADWIRE_HOST_DEVICE static constexpr float magnitude(std::uint32_t cell) {
    constexpr float kMagnitudes[kCells] = {0.128395F, 0.388048F, 0.656759F, 0.942340F,
                                           1.256231F, 1.618046F, 2.069017F, 2.732590F};
    return kMagnitudes[cell];
  }
  /// Between `cell` and the next: midway.
  GRADWIRE_HOST_DEVICE static constexpr float threshold(std::uint32_t cell) {
    return (magnitude(cell) + magnitude(cell + 1)) * 0.5F;
  }
  GRADWIRE_HOST_DEVICE static std::uint32_t quantize(float z) {
    const float a = bits_as<float>(abs_bits(z));
    std::uint32_t cell = 0;
    for (std::uint32_t i = 0; i + 1 < kCells; ++i) {
      cell += a > threshold(i) ? 1U : 0U;
    }
    return bits_as<std::uint32_t>(z) >> 31 != 0 ? kCells - 1 - cell : kCells + cell;
  }
  GRADWIRE_HOST_DEVICE static float level(std::uint32_t code) {
    return code < kCells ? -magnitude(kCells - 1 - code) : magnitude(code - kCells);
  }
};

using Int4 = RotatedCore<Int4Grid>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_INT4_HPP
