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
  static constexpr std::size_t kCodeBytes = 64;
  static constexpr float kLow = Int2Grid::kLow * 0.0625F;
  static constexpr float kHigh = Int2Grid::kHigh * 0.0625F;

  static HWY_INLINE VI32 quantize(VF32 z, VF32& level) {
    const F32 df;
    const I32 d;
    const auto above = hn::Abs(z) > hn::Set(df, Int2Grid::kThreshold);
    const VF32 magnitude = hn::IfThenElse(above, hn::Set(df, kHigh), hn::Set(df, kLow));
    level = hn::Or(magnitude, hn::And(z, hn::SignBit(df)));
    // 0 or 1, or their complements where z is negative.
    const VI32 cell = hn::Zero(d) - hn::BitCast(d, hn::VecFromMask(df, above));
    return hn::Xor(cell, hn::ShiftRight<31>(hn::BitCast(d, z)));
  }

  static HWY_INLINE VF32 level(const std::uint8_t* codes, std::size_t i) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    const I32 d;
    const hn::Rebind<std::uint8_t, F32> d8;
    const VI32 four = hn::PromoteTo(d, hn::LoadU(d8, codes + i % kCodeBytes));
    const VI32 code = hn::ShiftRightSame(four, static_cast<int>(i / kCodeBytes * 2));
    alignas(64) static constexpr float kLevels[4] = {-kHigh, -kLow, kLow, kHigh};
    const VF32 levels = hn::LoadDup128(F32(), kLevels);
#if HWY_TARGET <= HWY_AVX3
    return VF32{_mm512_permutevar_ps(levels.raw, code.raw)};
#else
    return VF32{_mm256_permutevar_ps(levels.raw, code.raw)};
#endif
#else
    alignas(64) float levels[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t code = RotatedCore<Int2Grid>::code_at(codes, static_cast<std::uint32_t>(i + lane));
      levels[lane] = Int2Grid::level(code) * 0.0625F;
    }
    return hn::Load(F32(), levels);
#endif
  }

  static HWY_INLINE void store(const std::int32_t* code, std::uint8_t* out) {
    const I32 d;
    const auto part = [&](std::size_t t) HWY_ATTR { return hn::And(hn::Load(d, code + t * kLanes), hn::Set(d, 3)); };
    VI32 byte[2];  // signed
    for (std::size_t t = 0; t < 2; ++t) {
      const VI32 low = hn::Or(part(t), hn::ShiftLeft<2>(part(t + 2)));
      const VI32 high = hn::Or(hn::ShiftLeft<4>(part(t + 4)),
                               hn::ShiftRight<24>(hn::ShiftLeft<30>(hn::Load(d, code + (t + 6) * kLanes))));
      byte[t] = hn::Xor(hn::Or(low, high), hn::Set(d, ~0x55));  // adds 2 to each
    }
    alignas(64) std::uint8_t bytes[4 * kLanes];
    store_bytes(byte[0], byte[1], byte[0], byte[1], bytes);
    for (std::size_t t = 0; t < 2; ++t) {
      memcpy(out + t * kNear, bytes + t * kLanes, kLanes);
    }
  }
};

using Int2 = RotatedSimd<Int2Grid, Int2Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
