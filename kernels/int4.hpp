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

struct Int4Lanes {
  static constexpr std::size_t kCodeBytes = 128;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  // Sections of width 1/3.4, the first half as wide, with at most one threshold in each: section s lies in cell s - 1
  // or s. The first has none.
  static HWY_INLINE VI32 quantize(VF32 z, VF32& level) {
    const F32 df;
    const I32 d;
    const VF32 a = hn::Abs(z);
    // The nearest integer s of a * 3.4 in the low bits, as s - 1.
    const VF32 rounded = hn::Min(a, hn::Set(df, 2.0F)) * hn::Set(df, 3.4F) + hn::Set(df, 12582911.0F);
    const VI32 section = hn::BitCast(d, rounded);
    const auto above = a > lookup(thresholds(), section);
    const VI32 cell = section - hn::BitCast(d, hn::VecFromMask(df, above));  // in the low bits
    level = hn::Or(lookup(magnitudes(), cell), hn::And(z, hn::SignBit(df)));
    return hn::Xor(cell, hn::ShiftRight<31>(hn::BitCast(d, z)));
  }

  static HWY_INLINE VF32 level(const std::uint8_t* codes, std::size_t i) {
    const F32 df;
    const I32 d;
    const hn::Rebind<std::uint8_t, F32> d8;
    const VI32 pair = hn::PromoteTo(d, hn::LoadU(d8, codes + i % kCodeBytes));
    const VI32 code = i < kCodeBytes ? pair : hn::ShiftRight<4>(pair);
    const VF32 positive = hn::BitCast(df, hn::ShiftLeft<28>(code));  // its sign bit: bit 3 of the code
    return hn::IfNegativeThenElse(positive, lookup(magnitudes(), code), lookup(negative(), code));
  }

 private:
  // Entry index % 8 for each lane.
  static HWY_INLINE VF32 lookup(VF32 table, VI32 index) {
#if HWY_TARGET <= HWY_AVX3
    return VF32{_mm512_permutexvar_ps(index.raw, table.raw)};
#else
    return VF32{_mm256_permutevar8x32_ps(table.raw, index.raw)};
#endif
  }
  // From memory a lookup takes twice as long; the assembly keeps the compiler from merging the two.
  static HWY_INLINE VF32 table(const float (&entries)[16]) {
    VF32 v = hn::Load(F32(), entries);
    asm("" : "+x"(v.raw));
    return v;
  }
  static HWY_INLINE VF32 thresholds() {
    using G = Int4Grid;
    alignas(64) static constexpr float kThresholds[16] = {
        G::threshold(0), G::threshold(1), G::threshold(2), G::threshold(3),
        G::threshold(4), G::threshold(5), G::threshold(6), -1.0F,
        G::threshold(0), G::threshold(1), G::threshold(2), G::threshold(3),
        G::threshold(4), G::threshold(5), G::threshold(6), -1.0F};
    return table(kThresholds);
  }
  static constexpr float over16(std::uint32_t cell) { return Int4Grid::magnitude(cell) * 0.0625F; }
  static HWY_INLINE VF32 magnitudes() {
    alignas(64) static constexpr float kMagnitudes[16] = {
        over16(0), over16(1), over16(2), over16(3), over16(4), over16(5), over16(6), over16(7),
        over16(0), over16(1), over16(2), over16(3), over16(4), over16(5), over16(6), over16(7)};
    return table(kMagnitudes);
  }
  static HWY_INLINE VF32 negative() {  // codes 0 to 7
    alignas(64) static constexpr float kNegative[16] = {
        -over16(7), -over16(6), -over16(5), -over16(4), -over16(3), -over16(2), -over16(1), -over16(0),
        -over16(7), -over16(6), -over16(5), -over16(4), -over16(3), -over16(2), -over16(1), -over16(0)};
    return table(kNegative);
  }

 public:
#else
  static HWY_INLINE VI32 quantize(VF32 z, VF32& level) {
    const F32 df;
    const I32 d;
    const VF32 a = hn::Abs(z);
    VI32 cell = hn::Zero(d);
    VF32 magnitude = hn::Set(df, Int4Grid::magnitude(0) * 0.0625F);
    for (std::uint32_t i = 0; i + 1 < Int4Grid::kCells; ++i) {
      const auto above = a > hn::Set(df, Int4Grid::threshold(i));
      cell = cell - hn::BitCast(d, hn::VecFromMask(df, above));
      magnitude = hn::IfThenElse(above, hn::Set(df, Int4Grid::magnitude(i + 1) * 0.0625F), magnitude);
    }
    level = hn::Or(magnitude, hn::And(z, hn::SignBit(df)));
    return hn::Xor(cell, hn::ShiftRight<31>(hn::BitCast(d, z)));
  }
  static HWY_INLINE VF32 level(const std::uint8_t* codes, std::size_t i) {
    alignas(64) float levels[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t code = RotatedCore<Int4Grid>::code_at(codes, static_cast<std::uint32_t>(i + lane));
      levels[lane] = Int4Grid::level(code) * 0.0625F;
    }
    return hn::Load(F32(), levels);
  }
#endif

  static HWY_INLINE void store(const std::int32_t* code, std::uint8_t* out) {
    const I32 d;
    VI32 byte[4];  // signed
    for (std::size_t t = 0; t < 4; ++t) {
      const VI32 low = hn::And(hn::Load(d, code + t * kLanes), hn::Set(d, 15));
      const VI32 high = hn::ShiftRight<24>(hn::ShiftLeft<28>(hn::Load(d, code + (t + 4) * kLanes)));
      byte[t] = hn::Xor(hn::Or(low, high), hn::Set(d, ~0x77));  // adds 8 to either
    }
    alignas(64) std::uint8_t bytes[4 * kLanes];
    store_bytes(byte[0], byte[1], byte[2], byte[3], bytes);
    for (std::size_t t = 0; t < 4; ++t) {
      memcpy(out + t * kNear, bytes + t * kLanes, kLanes);
    }
  }
};

using Int4 = RotatedSimd<Int4Grid, Int4Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
