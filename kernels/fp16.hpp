// fp16: blocks of 256, S = 2^floor(log2(absmax)), code = x/S as IEEE half: |x/S| < 2, so nothing overflows. x/S may
// round to 2; only for S = 2^127, where that would decode to Inf, it becomes the half below.
#ifndef GRADWIRE_KERNELS_FP16_HPP
#define GRADWIRE_KERNELS_FP16_HPP

#include "kernels/block.hpp"

namespace gradwire::kernels {

struct Fp16Rule {
  using Code = std::uint16_t;
  static constexpr std::uint32_t kBlock = 256;
  static constexpr std::uint32_t kRare = 0x7F000000U;  // S = 2^127, where 2 x S would be Inf: see quantize

  GRADWIRE_HOST_DEVICE static std::uint16_t scale(std::uint32_t absmax_bits) { return scale_power_of_two(absmax_bits); }
  GRADWIRE_HOST_DEVICE static Code quantize(float x, float inverse) {
    const Code code = to_f16(x * inverse);
    const bool overflows = inverse < 0x1p-126F && (code & 0x7FFFU) == 0x4000U;  // 2 x 2^127
    return static_cast<Code>(overflows ? code - 1 : code);
  }
  GRADWIRE_HOST_DEVICE static float level(Code code) { return from_f16(code); }
};

using Fp16 = BlockCore<Fp16Rule>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_FP16_HPP

// SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_FP16_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_FP16_SIMD_HPP
#undef GRADWIRE_KERNELS_FP16_SIMD_HPP
#else
#define GRADWIRE_KERNELS_FP16_SIMD_HPP
#endif

#include "kernels/block.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

struct Fp16Lanes {
  static HWY_INLINE VI32 quantize(VF32 x) { return hn::BitCast(I32(), to_f16(x)); }
  static HWY_INLINE VF32 level(VI32 codes) { return from_f16(hn::BitCast(U32(), codes)); }
  static HWY_INLINE void store(VI32 c0, VI32 c1, VI32 c2, VI32 c3, std::uint8_t* out) {
    const std::size_t bytes = 2 * lanes();
    store_u16(hn::BitCast(U32(), c0), out);
    store_u16(hn::BitCast(U32(), c1), out + bytes);
    store_u16(hn::BitCast(U32(), c2), out + 2 * bytes);
    store_u16(hn::BitCast(U32(), c3), out + 3 * bytes);
  }
  static HWY_INLINE VI32 load(const std::uint8_t* in) { return hn::BitCast(I32(), load_u16(in)); }
};

using Fp16 = BlockSimd<Fp16Rule, Fp16Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
