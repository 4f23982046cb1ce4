// int2: rotated blocks of 256 on the 4 levels that are the best for a Gaussian (Lloyd-Max); after a selector, sign and
// one of two magnitudes, not rotated.
#ifndef GRADWIRE_KERNELS_INT2_HPP
#define GRADWIRE_KERNELS_INT2_HPP

#include "kernels/rotation.hpp"

namespace gradwire::kernels {

/// Kept values: two scales, the means of |v| not above and above mean |v| (0 where there is none), then for element i
/// two bits at 2 (i % 4) of byte i / 4: the sign, and whether |v| is above the mean. Below 2^-126 all is 0.
struct KeptPairs {
  using Value = float;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t bytes(std::uint32_t count) { return 4 + (count + 3) / 4; }

  GRADWIRE_HOST_DEVICE static bool encode(const float* values, std::uint32_t count, std::uint8_t* out) {
    fill_zero(out, bytes(count));
    const std::uint32_t absmax = largest(Run{values, nullptr, count});
    if (absmax >= kInfinity) {
      store(out, 0, kNanBf16);
      store(out, 1, kNanBf16);
      return true;
    }
    if (absmax < kSmallestNormal) {
      return false;
    }
    const float down = inverse_power_of_two(absmax);
    OrderedSum all;
    for (std::uint32_t i = 0; i < count; ++i) {
      all.add(i, magnitude(values[i], down));
    }
    const float mean = all.total() / static_cast<float>(count);
    OrderedSum sum[2];
    std::uint32_t members[2] = {0, 0};
    for (std::uint32_t i = 0; i < count; ++i) {
      const float a = magnitude(values[i], down);
      const std::uint32_t high = a > mean ? 1U : 0U;
      sum[high].add(i, a);
      members[high] += 1;
      const std::uint32_t code = bits_as<std::uint32_t>(values[i]) >> 31 | high << 1;
      out[4 + i / 4] = static_cast<std::uint8_t>(out[4 + i / 4] | code << (i % 4 * 2));
    }
    for (std::uint32_t high = 0; high < 2; ++high) {
      if (members[high] != 0) {
        store(out, high, scale_nearest(sum[high].total() / static_cast<float>(members[high]), absmax));
      }
    }
    return false;
  }

  GRADWIRE_HOST_DEVICE static void decode(const std::uint8_t* in, std::uint32_t count, float* values) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t code = (static_cast<std::uint32_t>(in[4 + i / 4]) >> (i % 4 * 2)) & 3U;
      const std::uint32_t scale = load<std::uint16_t>(in, code >> 1);
      values[i] = bits_as<float>((scale << 16) ^ (code << 31));
    }
  }

 private:
  GRADWIRE_HOST_DEVICE static float magnitude(float x, float down) { return bits_as<float>(abs_bits(x)) * down; }
};

struct Int2Grid {
  using Kept = KeptPairs;
  static constexpr std::uint32_t kBits = 2;
  static constexpr float kThreshold = 0.981599F;
  static constexpr float kLow = 0.452780F;
  static constexpr float kHigh = 1.510418F;

  GRADWIRE_HOST_DEVICE static std::uint32_t quantize(float z) {
    const std::uint32_t cell = bits_as<float>(abs_bits(z)) > kThreshold ? 1U : 0U;
    return bits_as<std::uint32_t>(z) >> 31 != 0 ? 1 - cell : 2 + cell;
  }
  GRADWIRE_HOST_DEVICE static float level(std::uint32_t code) {
    const float magnitude = code == 0 || code == 3 ? kHigh : kLow;
    return code < 2 ? -magnitude : magnitude;
  }
};

using Int2 = RotatedCore<Int2Grid>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_INT2_HPP
