// int2: rotated blocks of 256 on the 4 levels that are best for a Gaussian (Lloyd-Max); after a selector, a sign and
// one of two magnitudes, not rotated.
#ifndef GRADWIRE_KERNELS_INT2_HPP
#define GRADWIRE_KERNELS_INT2_HPP

#include "kernels/rotation.hpp"

namespace gradwire::kernels {

/// The coder of selected values. First two scales: the mean of the |v| that do not exceed the mean of all |v|, and the
/// mean of those that do (0 where there are none). Then for element i two bits at 2 (i % 4) of byte i / 4: the sign,
/// and whether |v| exceeds the mean. If all |v| are below 2^-126, everything is 0.
struct SelectedPairs {
  using Value = float;
  static constexpr std::uint32_t kNonfiniteFrom = kInfinity;

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
  using Selected = SelectedPairs;
  static constexpr std::uint32_t kBits = 2;
  static constexpr std::uint32_t kCells = 2;  // number of magnitudes

  /// The best levels, 0.452780 and 1.510418 of the spread, have the ratio of 3 to 10.01.
  GRADWIRE_HOST_DEVICE static constexpr std::int32_t magnitude(std::uint32_t cell) { return cell == 0 ? 3 : 10; }
  /// The middle between the two levels, 0.981599, in units of 1/1024.
  GRADWIRE_HOST_DEVICE static constexpr std::int32_t threshold(std::uint32_t /*cell*/) { return 1005; }
};

using Int2 = RotatedCore<Int2Grid>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_INT2_HPP

// SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_INT2_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_INT2_SIMD_HPP
#undef GRADWIRE_KERNELS_INT2_SIMD_HPP
#else
#define GRADWIRE_KERNELS_INT2_SIMD_HPP
#endif

#include "kernels/rotation_simd.hpp"

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

struct Int2Lanes {
  static HWY_INLINE VU8 codes(V16 q0, V16 q1) {
    const B16 d16;
    const BU8 d;
    const V16 below = hn::Set(d16, static_cast<std::int16_t>(Int2Grid::threshold(0) - 1));
    const V16 above0 = hn::VecFromMask(d16, hn::Abs(q0) > below);
    const V16 above1 = hn::VecFromMask(d16, hn::Abs(q1) > below);
    const VU8 code = hn::Set(d, 2) - hn::BitCast(d, pack(above0, above1));
    const VU8 negative = hn::BitCast(d, hn::BroadcastSignBit(pack(q0, q1)));
    return hn::Xor(code, hn::And(negative, hn::Set(d, 3)));
  }
};

using Int2 = RotatedSimd<Int2Grid, Int2Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
