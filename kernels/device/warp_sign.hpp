// The codec sign as a warp runs it: a strip is one block, whose 32 bytes of bits are one byte a lane.
#ifndef GRADWIRE_KERNELS_DEVICE_WARP_SIGN_HPP
#define GRADWIRE_KERNELS_DEVICE_WARP_SIGN_HPP

#include "kernels/device/warp_codecs.hpp"
#include "kernels/device/warp_sum.hpp"
#include "kernels/sign.hpp"

namespace gradwire::kernels {

struct WarpSign {
  using Core = Sign;
  using Value = float;
  using Shared = WarpSums;
  static constexpr int kAhead = 4;
  static constexpr int kBlocksOfProcessor = 5;
  using Context = NoContext;
  struct Raw {
    std::uint8_t bits[2];  // of each half of the strip the byte that has this lane's four
    std::uint16_t scale;
  };

  GRADWIRE_DEVICE static Context context(const Tile& /*tile*/) { return {}; }

  GRADWIRE_DEVICE static std::uint32_t encode(const Context& /*context*/, std::uint32_t strip, float (&x)[kHeld],
                                              std::uint32_t count, std::uint8_t* out, Shared& shared, bool /*keeps*/) {
    const std::uint32_t left = left_of(strip, count);
    const std::uint32_t elements = left < kStrip ? left : kStrip;
    std::uint32_t absmax = 0;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::uint32_t bits = abs_bits(x[r]);
      absmax = bits > absmax ? bits : absmax;
    }
    absmax = simt::warp_max(absmax);
    const bool nonfinite = absmax >= kInfinity;
    std::uint16_t scale_bits = nonfinite ? kNanBf16 : std::uint16_t{0};
    if (!nonfinite && absmax >= kSmallestNormal) {
      const float down = inverse_power_of_two(absmax);
      float magnitude[kHeld];
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        magnitude[r] = bits_as<float>(abs_bits(x[r])) * down;
      }
      scale_bits = scale_nearest(ordered_sum(magnitude, shared) / static_cast<float>(elements), absmax);
    }
    const bool coded = !nonfinite && scale_bits != 0;
    std::uint32_t words[2] = {0, 0};  // of this lane's group of 8: bits of elements 128 h + 32 group on
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::uint32_t bit = coded ? bits_as<std::uint32_t>(x[r]) >> 31 : 0U;
      words[r / 4] |= bit << (4 * (simt::lane() % 8) + static_cast<std::uint32_t>(r % 4));
      x[r] = coded ? x[r] - Core::value(scale_bits, bit) : x[r];
    }
    if (simt::lane() == 0) {
      simt::store2(out + strip * 2, scale_bits);
    }
    store_bits(out + Core::scale_bytes(count) + strip * kStrip / 8, words, (elements + 7) / 8);
    return nonfinite ? 0xFFU : 0U;
  }

  GRADWIRE_DEVICE static Raw fetch(std::uint32_t strip, std::uint32_t count, const std::uint8_t* in) {
    const std::uint8_t* bits = in + Core::scale_bytes(count) + strip * kStrip / 8;
    const std::uint32_t left = left_of(strip, count);
    const std::uint32_t lane = simt::lane();
    Raw raw;
    GRADWIRE_UNROLL
    for (std::uint32_t h = 0; h < 2; ++h) {
      const std::uint32_t at = 16 * h + lane / 2;
      raw.bits[h] = 8 * at < left ? bits[at] : std::uint8_t{0};
    }
    raw.scale = simt::load2(in + strip * 2);
    return raw;
  }
  GRADWIRE_DEVICE static void expand(const Context& /*context*/, const Raw& raw, float (&x)[kHeld]) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::uint32_t place = simt::lane() % 2 * 4 + static_cast<std::uint32_t>(r % 4);
      x[r] = Core::value(raw.scale, (std::uint32_t{raw.bits[r / 4]} >> place) & 1U);
    }
  }

 private:
  // Byte `lane` is of word h = lane / 16 of group lane / 4 % 4.
  GRADWIRE_DEVICE static void store_bits(std::uint8_t* out, std::uint32_t (&words)[2], std::uint32_t bytes) {
    GRADWIRE_UNROLL
    for (std::uint32_t mask = 1; mask < 8; mask *= 2) {
      std::uint32_t other[2];
      simt::shuffle_xor(words, mask, other);
      words[0] |= other[0];
      words[1] |= other[1];
    }
    const std::uint32_t lane = simt::lane();
    const std::uint32_t from = lane / 4 % 4 * 8;
    const std::uint32_t low = simt::shuffle(words[0], from);
    const std::uint32_t high = simt::shuffle(words[1], from);
    if (lane < bytes) {
      out[lane] = static_cast<std::uint8_t>((lane < 16 ? low : high) >> (lane % 4 * 8));
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_SIGN_HPP
