// int4: rotated blocks of 256 on the 16 levels that are best for a Gaussian (Lloyd-Max); after a selector, one block on
// 16 even levels, not rotated.
#ifndef GRADWIRE_KERNELS_INT4_HPP
#define GRADWIRE_KERNELS_INT4_HPP

#include "kernels/rotation.hpp"

namespace gradwire::kernels {

/// The coder of selected values: a scale S = absmax/15 rounded up, then nibbles, element i in nibble i % 2 of byte i /
/// 2; code c is the level (2 c - 15) S.
struct SelectedNibbles {
  using Value = float;
  static constexpr std::uint32_t kNonfiniteFrom = kInfinity;
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
      const std::uint32_t code = quantize(values[i], inverse);
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

  GRADWIRE_HOST_DEVICE static std::uint16_t scale(std::uint32_t absmax) {
    const std::uint16_t up = scale_round_up(bits_as<float>(absmax) / 15.0F);
    return up > kLargestScale ? kLargestScale : up;
  }
  GRADWIRE_HOST_DEVICE static std::uint32_t quantize(float x, float inverse) {
    const std::int32_t q = round_to_int(x * inverse * 0.5F + 7.5F);
    return q < 0 ? 0U : (q > 15 ? 15U : static_cast<std::uint32_t>(q));
  }
};

struct Int4Grid {
  using Selected = SelectedNibbles;
  static constexpr std::uint32_t kBits = 4;
  static constexpr std::uint32_t kCells = 8;  // number of magnitudes

  /// A level in units of 1/32 of the spread: within 1/64 of the best one.
  GRADWIRE_HOST_DEVICE static constexpr std::int32_t magnitude(std::uint32_t cell) {
    constexpr std::int32_t kMagnitudes[kCells] = {4, 12, 21, 30, 40, 52, 66, 87};
    return kMagnitudes[cell];
  }
  /// The middle between `cell` and the next cell, in units of 1/1024.
  GRADWIRE_HOST_DEVICE static constexpr std::int32_t threshold(std::uint32_t cell) {
    return 16 * (magnitude(cell) + magnitude(cell + 1));
  }
};

using Int4 = RotatedCore<Int4Grid>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_INT4_HPP

// SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_INT4_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_INT4_SIMD_HPP
#undef GRADWIRE_KERNELS_INT4_SIMD_HPP
#else
#define GRADWIRE_KERNELS_INT4_SIMD_HPP
#endif

#include "kernels/rotation_simd.hpp"

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

// Multiples of 1/64 below 4 fall into 16 sections with at most one threshold each, so that two look-ups and a
// saturating difference find the cell.
struct Int4Sections {
  alignas(16) std::uint8_t code[16] = {};   // code at the beginning of each section
  alignas(16) std::uint8_t below[16] = {};  // above this value the code is one more

  constexpr Int4Sections() {
    for (std::uint32_t section = 0; section < 16; ++section) {
      const std::uint32_t begin = 16 * section;
      std::uint32_t reached = 0;
      below[section] = 255;
      for (std::uint32_t i = 0; i + 1 < Int4Grid::kCells; ++i) {
        const auto at = static_cast<std::uint32_t>(Int4Grid::threshold(i) / 16);
        reached += at <= begin ? 1U : 0U;
        if (at > begin && at < begin + 16) {
          below[section] = static_cast<std::uint8_t>(at - 1);
        }
      }
      code[section] = static_cast<std::uint8_t>(Int4Grid::kCells + reached);
    }
  }
};

struct Int4Lanes {
  static HWY_INLINE VU8 codes(V16 q0, V16 q1) {
    alignas(16) static constexpr Int4Sections kSections;
    const BU8 d;
    const VU8 a = pack_unsigned(hn::ShiftRight<4>(hn::Abs(q0)), hn::ShiftRight<4>(hn::Abs(q1)));
    const VU8 section = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(B16(), a))), hn::Set(d, 15));
    const VU8 below = hn::TableLookupBytes(hn::LoadDup128(d, kSections.below), section);
    const VU8 code = hn::TableLookupBytes(hn::LoadDup128(d, kSections.code), section);
    const VU8 above = hn::Min(hn::SaturatedSub(a, below), hn::Set(d, 1));
    const VU8 negative = hn::BitCast(d, hn::BroadcastSignBit(pack(q0, q1)));
    return hn::Xor(code + above, hn::And(negative, hn::Set(d, 15)));
  }
};

using Int4 = RotatedSimd<Int4Grid, Int4Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
