// The SIMD version of stochastic_bf16.hpp, apart from it because that one is also included where Highway is not.
#if defined(GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP
#undef GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP
#else
#define GRADWIRE_KERNELS_STOCHASTIC_BF16_SIMD_HPP
#endif

#include "kernels/rounding_bits_simd.hpp"
#include "kernels/simd.hpp"
#include "kernels/stochastic_bf16.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

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
  // Rounds the elements of a group. Only the largest finite values and those that are none need more than a sum.
  static HWY_INLINE void narrow_group(RoundingKey key, std::uint32_t index, const float* values, std::uint16_t* out) {
    const U32 d;
    const I32 di;
    constexpr std::size_t kHalf = kRoundingGroup / 2;
    for (std::size_t i = 0; i < kHalf; i += lanes()) {
      const VU32 random = rounding_hashes(key, index / 2 + static_cast<std::uint32_t>(i));
      const VU32 random0 = hn::And(random, hn::Set(d, 0xFFFF));
      const VU32 random1 = hn::ShiftRight<16>(random);
      const VF32 x0 = hn::LoadU(F32(), values + i);
      const VF32 x1 = hn::LoadU(F32(), values + kHalf + i);
      const VI32 most = hn::Max(hn::BitCast(di, abs_bits(x0)), hn::BitCast(di, abs_bits(x1)));
      auto* out0 = reinterpret_cast<std::uint8_t*>(out + i);
      auto* out1 = reinterpret_cast<std::uint8_t*>(out + kHalf + i);
      if (HWY_LIKELY(hn::AllTrue(di, hn::Lt(most, hn::Set(di, 0x7F7F0000))))) {
        const VU32 sum0 = hn::BitCast(d, x0) + random0;
        const VU32 sum1 = hn::BitCast(d, x1) + random1;
        if (lanes() == kHalf) {  // both halves are one vector of upper halves
          const hn::Repartition<std::uint16_t, F32> narrow;
          hn::StoreU(hn::ConcatOdd(narrow, hn::BitCast(narrow, sum1), hn::BitCast(narrow, sum0)), narrow, out);
          return;
        }
        store_u16(hn::ShiftRight<16>(sum0), out0);
        store_u16(hn::ShiftRight<16>(sum1), out1);
      } else {
        store_u16(to_bf16_stochastic(x0, random0), out0);
        store_u16(to_bf16_stochastic(x1, random1), out1);
      }
    }
  }

  static void narrow(RoundingKey key, std::uint32_t index, const float* values, std::uint64_t count,
                     std::uint16_t* out) {
    const std::uint32_t lead = index % kRoundingGroup;  // elements of the first group that are not there
    std::uint64_t i = 0;
    if (lead != 0) {
      i = kRoundingGroup - lead < count ? kRoundingGroup - lead : count;
      narrow_part(key, index, values, static_cast<std::uint32_t>(i), out);
    }
    for (; i + kRoundingGroup <= count; i += kRoundingGroup) {
      narrow_group(key, index + static_cast<std::uint32_t>(i), values + i, out + i);
    }
    if (i < count) {
      narrow_part(key, index + static_cast<std::uint32_t>(i), values + i, static_cast<std::uint32_t>(count - i),
                  out + i);
    }
  }

  static void widen(const std::uint16_t* in, std::uint64_t count, float* values) {
    std::uint64_t i = 0;
    for (; i + lanes() <= count; i += lanes()) {
      hn::StoreU(from_bf16(load_u16(reinterpret_cast<const std::uint8_t*>(in + i))), F32(), values + i);
    }
    kernels::StochasticBf16::widen(in + i, count - i, values + i);
  }

 private:
  // Rounds `count` elements that lie in one group.
  static void narrow_part(RoundingKey key, std::uint32_t index, const float* values, std::uint32_t count,
                          std::uint16_t* out) {
    const std::uint32_t lead = index % kRoundingGroup;
    float group[kRoundingGroup] = {};
    std::uint16_t rounded[kRoundingGroup];
    __builtin_memcpy(group + lead, values, count * sizeof(float));
    narrow_group(key, index - lead, group, rounded);
    __builtin_memcpy(out, rounded + lead, count * sizeof(std::uint16_t));
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
