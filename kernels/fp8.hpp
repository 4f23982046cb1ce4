// fp8: blocks of 128, S = absmax/448 rounded up, code = x/S as e4m3.
#ifndef GRADWIRE_KERNELS_FP8_HPP
#define GRADWIRE_KERNELS_FP8_HPP

#include "kernels/block.hpp"

namespace gradwire::kernels {

struct Fp8Rule {
  using Code = std::uint8_t;
  static constexpr std::uint32_t kBlock = 128;
  static constexpr std::uint32_t kRare = kInfinity;
  static constexpr std::uint16_t kLargestScale = 0x7B12U;  // 448 S is finite

  GRADWIRE_HOST_DEVICE static std::uint16_t scale(std::uint32_t absmax_bits) {
    const std::uint16_t up = scale_round_up(bits_as<float>(absmax_bits) / 448.0F);
    return up > kLargestScale ? kLargestScale : up;
  }
  // |x/S| stays below 449, which becomes 448.
  GRADWIRE_HOST_DEVICE static Code quantize(float x, float inverse) { return to_e4m3(x * inverse); }
  GRADWIRE_HOST_DEVICE static float level(Code code) { return from_e4m3(code); }
};

using Fp8 = BlockCore<Fp8Rule>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_FP8_HPP

// SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_FP8_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_FP8_SIMD_HPP
#undef GRADWIRE_KERNELS_FP8_SIMD_HPP
#else
#define GRADWIRE_KERNELS_FP8_SIMD_HPP
#endif

#include "kernels/block.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

// A code is a signed byte in its lane: the sign of x reaches through the upper bits.
struct Fp8Lanes {
  static HWY_INLINE VI32 quantize(VF32 x) {
    const I32 d;
    const F32 df;
    const VI32 magnitude = hn::BitCast(d, abs_bits(x));
    const VI32 small = hn::BitCast(d, hn::BitCast(df, magnitude) + hn::Set(df, 0x1p14F)) - hn::Set(d, 0x46800000);
    const VI32 odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(d, 1));
    const VI32 normal = hn::ShiftRight<20>(magnitude - hn::Set(d, 0x3C000000 - 0x7FFFF) + odd);
    const VI32 code = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x3C800000)), small, normal);
    return hn::Or(code, hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(d, x))));
  }
  static HWY_INLINE VF32 level(VI32 codes) {
    const I32 d;
    const F32 df;
    const VI32 magnitude = hn::And(codes, hn::Set(d, 0x7F));
    const VF32 finite = hn::BitCast(df, hn::ShiftLeft<20>(magnitude)) * hn::Set(df, 0x1p120F);
    const auto nan = hn::RebindMask(df, hn::Eq(magnitude, hn::Set(d, 0x7F)));
    const VF32 value = hn::IfThenElse(nan, hn::BitCast(df, hn::Set(d, 0x7FC00000)), finite);
    return hn::Or(value, hn::And(hn::BitCast(df, codes), hn::SignBit(df)));
  }
  static HWY_INLINE void store(VI32 c0, VI32 c1, VI32 c2, VI32 c3, std::uint8_t* out) {
    store_bytes(c0, c1, c2, c3, out);
  }
  static HWY_INLINE VI32 load(const std::uint8_t* in) { return load_bytes(in); }
};

using Fp8 = BlockSimd<Fp8Rule, Fp8Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
