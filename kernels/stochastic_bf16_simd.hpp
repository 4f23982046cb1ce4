// The SIMD version of stochastic_bf16.hpp, apart from it because that one is also included where Highway is not.
#if defined(GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP
#undef GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP
#else
#define GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP
#endif

#include "kernels/simd.hpp"
#include "kernels/stochastic_bf16.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

/// rounding_bits() of the element of each lane.
HWY_INLINE VU32 rounding_bits(RoundingKey key, VU32 index) {
  const U32 d;
  const VU32 first = (index + hn::Set(d, key.word[0])) * hn::Set(d, 0x9E3779B1U);
  const VU32 mixed = hn::Xor(hn::Xor(first, hn::ShiftRight<15>(first)), hn::Set(d, key.word[1]));
  const VU32 second = mixed * hn::Set(d, 0x85EBCA6BU);
  return hn::ShiftRight<16>(hn::Xor(second, hn::ShiftRight<13>(second)) * hn::Set(d, 0xC2B2AE35U));
}

/// to_bf16_stochastic() of each lane, in the low half of the lane.
HWY_INLINE VU32 to_bf16_stochastic(VF32 x, VU32 random) {
  const U32 d;
  const I32 di;  // magnitudes compare as signed integers
  const VU32 magnitude = abs_bits(x);
  const VI32 order = hn::BitCast(di, magnitude);
  const VI32 finite = hn::Min(hn::BitCast(di, magnitude + random), hn::Set(di, 0x7F7FFFFF));
  const VI32 infinity = hn::Set(di, static_cast<std::int32_t>(kInfinity));
  const VU32 rounded = hn::BitCast(d, hn::IfThenElse(hn::Lt(order, infinity), finite, infinity));
  const VU32 sign = hn::And(hn::BitCast(d, x), hn::Set(d, ~kAbsMask));
  const auto nan = hn::RebindMask(d, hn::Gt(order, infinity));
  return hn::IfThenElse(nan, hn::Set(d, kNanBf16), hn::ShiftRight<16>(hn::Or(rounded, sign)));
}

struct StochasticBf16 {
  static void narrow(RoundingKey key, std::uint32_t index, const float* values, std::uint64_t count,
                     std::uint16_t* out) {
    const std::size_t step = lanes();
    VU32 indices = hn::Iota(U32(), index);
    std::uint64_t i = 0;
    for (; i + step <= count; i += step) {
      const VU32 rounded = to_bf16_stochastic(hn::LoadU(F32(), values + i), rounding_bits(key, indices));
      store_u16(rounded, reinterpret_cast<std::uint8_t*>(out + i));
      indices = indices + hn::Set(U32(), static_cast<std::uint32_t>(step));
    }
    kernels::StochasticBf16::narrow(key, index + static_cast<std::uint32_t>(i), values + i, count - i, out + i);
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
