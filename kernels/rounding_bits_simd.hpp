// The SIMD version of rounding_bits.hpp, apart from it because that one is also included where Highway is not.
#if defined(GRADWIRE_KERNELS_ROUNDING_BITS_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_ROUNDING_BITS_SIMD_HPP
#undef GRADWIRE_KERNELS_ROUNDING_BITS_SIMD_HPP
#else
#define GRADWIRE_KERNELS_ROUNDING_BITS_SIMD_HPP
#endif

#include "kernels/rounding_bits.hpp"
#include "kernels/simd.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

/// rounding_hash() of `number` and the numbers after it, one for each lane.
HWY_INLINE VU32 rounding_hashes(RoundingKey key, std::uint32_t number) {
  const U32 d;
  const VU32 first = hn::Iota(d, 0) + hn::Set(d, number + key.word[0]);  // a constant, and a number that changes
  const VU32 mixed = hn::Xor(first, hn::ShiftRight<16>(first)) * hn::Set(d, 0x7FEB352DU);
  const VU32 keyed = hn::Xor(hn::Xor(mixed, hn::ShiftRight<15>(mixed)), hn::Set(d, key.word[1]));
  const VU32 hash = keyed * hn::Set(d, 0x846CA68BU);
  return hn::Xor(hash, hn::ShiftRight<16>(hash));
}

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
