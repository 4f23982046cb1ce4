// The codec sign as a warp runs it: a strip is one block, whose bits are 32 bytes, one byte a lane.
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
  static constexpr int kEncodingBlocks = 6;
  static constexpr int kSummingBlocks = 4;
  static constexpr int kWindowBlocks = 3;
  using Context = NoContext;
  struct Raw {
    std::uint8_t bits[2];  // for each half of the strip, the byte with this lane's four bits
    std::uint16_t scale;
  };

  GRADWIRE_DEVICE static Context context(const Tile& /*tile*/) { return {}; }

  GRADWIRE_DEVICE static std::uint32_t encode(const Context& /*context*/, std::uint32_t strip, float (&x)[kHeld],
                                              std::uint32_t count, std::uint8_t* out, Shared& shared, bool keeps) {
    const std::uint32_t left = remaining_of(strip, count);
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
    std::uint32_t bits = 0;  // four bits of each half of the strip, those of the second half at bit 16
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      bits |= (bits_as<std::uint32_t>(x[r]) >> 31) << (16 * (r / 4) + r % 4);
    }
    if (keeps && coded) {
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        x[r] = x[r] - Core::value(scale_bits, bits_as<std::uint32_t>(x[r]) >> 31);
      }
    }
    if (simt::lane() == 0) {
      simt::store2(out + strip * 2, scale_bits);
    }
    store_bits(out + Core::scale_bytes(count) + strip * kStrip / 8, coded ? bits : 0U, (elements + 7) / 8);
    return nonfinite ? 0xFFU : 0U;
  }

  GRADWIRE_DEVICE static Raw fetch(std::uint32_t strip, std::uint32_t count, const std::uint8_t* in) {
    const std::uint8_t* bits = in + Core::scale_bytes(count) + strip * kStrip / 8;
    const std::uint32_t left = remaining_of(strip, count);
    const std::uint32_t lane = simt::lane();
    Raw raw;
    GRADWIRE_UNROLL
    for (std::uint32_t h = 0; h < 2; ++h) {
      const std::uint32_t at = 16 * h + lane / 2;
      raw.bits[h] = 8 * at < left ? simt::load1(bits + at) : std::uint8_t{0};
    }
    raw.scale = simt::load2(in + strip * 2);
    return raw;
  }
  GRADWIRE_DEVICE static void expand(const Context& /*context*/, const Raw& raw, float (&x)[kHeld]) {
    const std::uint32_t place = simt::lane() % 2 * 4;  // where this lane's four bits begin
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::uint32_t last = std::uint32_t{raw.bits[r / 4]}
                                 << (28 - place);  // bit 31: that of the last of the four
      x[r] = Core::value(raw.scale, (last << (3 - r % 4)) >> 31);
    }
  }

 private:
  // A byte has bits of two lanes: the even lane stores the byte of the first half of the strip, the odd lane the other.
  GRADWIRE_DEVICE static void store_bits(std::uint8_t* out, std::uint32_t bits, std::uint32_t bytes) {
    const std::uint32_t other = simt::shuffle_xor(bits, 1);
    const std::uint32_t lane = simt::lane();
    const bool odd = lane % 2 != 0;
    const std::uint32_t at = (odd ? 16 : 0) + lane / 2;
    if (at < bytes) {
      simt::store1(out + at, static_cast<std::uint8_t>(odd ? (bits >> 12) | (other >> 16) : bits | (other << 4)));
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_SIGN_HPP
