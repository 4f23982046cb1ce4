// The SIMD version of stochastic_int8.hpp, apart from it because that one is also included where Highway is not.
#if defined(GRADWIRE_KERNELS_STOCHASTIC_INT8_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_STOCHASTIC_INT8_SIMD_HPP
#undef GRADWIRE_KERNELS_STOCHASTIC_INT8_SIMD_HPP
#else
#define GRADWIRE_KERNELS_STOCHASTIC_INT8_SIMD_HPP
#endif

#include "kernels/rounding_bits_simd.hpp"
#include "kernels/simd.hpp"
#include "kernels/stochastic_int8.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

struct StochasticInt8 {
  using Core = kernels::StochasticInt8;

  static void narrow(RoundingKey key, std::uint32_t index, const float* values, std::uint64_t blocks,
                     std::uint8_t* out) {
    for (; blocks > 0; --blocks, index += Core::kBlock, values += Core::kBlock, out += Core::kBlockBytes) {
      const std::uint8_t exponent = Core::exponent_of(largest<Core::kBlock, false>(values, nullptr));
      if (HWY_UNLIKELY(exponent == 0 || exponent >= Core::kMostExponent)) {
        narrow_other(key, index, values, out);
        continue;
      }
      out[0] = exponent;
      const VF32 inverse = hn::Set(F32(), Core::inverse_of(exponent));
      narrow_block(key, index / 2, values, inverse, out + 1);
    }
  }

  static void widen(const std::uint8_t* in, std::uint64_t blocks, float* values) {
    for (; blocks > 0; --blocks, in += Core::kBlockBytes, values += Core::kBlock) {
      const VF32 scale = hn::Set(F32(), Core::scale_of(in[0]));
      for (std::size_t i = 0; i < Core::kBlock; i += lanes()) {
        hn::StoreU(hn::ConvertTo(F32(), load_bytes(in + 1 + i)) * scale, F32(), values + i);
      }
    }
  }

 private:
  // Rounds a block of zeros, or with values that are very large or not finite.
  static HWY_NOINLINE void narrow_other(RoundingKey key, std::uint32_t index, const float* values, std::uint8_t* out) {
    Core::narrow(key, index, values, 1, out);
  }
  static HWY_INLINE VI32 rounded(const float* values, VF32 inverse, VU32 random) {
    const I32 d;
    const VI32 sum = hn::BitCast(d, hn::LoadU(F32(), values) * inverse + hn::Set(F32(), Core::kOffset));
    const VI32 offset = hn::Set(d, static_cast<std::int32_t>(Core::kLeastSum));
    return hn::ShiftRight<15>(sum - offset + hn::BitCast(d, random)) - hn::Set(d, 128);
  }
  // 15 random bits of elements in the first half of a group, and in the second.
  static HWY_INLINE VU32 low(VU32 hashes) { return hn::ShiftRight<1>(hn::And(hashes, hn::Set(U32(), 0xFFFF))); }
  static HWY_INLINE VU32 high(VU32 hashes) { return hn::ShiftRight<17>(hashes); }

  // Rounds the elements of a block, whose first hash is `number`, and stores four vectors at a time.
  static HWY_INLINE void narrow_block(RoundingKey key, std::uint32_t number, const float* x, VF32 inverse,
                                      std::uint8_t* out) {
    constexpr std::size_t kGroup = kRoundingGroup;
    constexpr std::size_t kHalf = kGroup / 2;
    if (lanes() == kHalf) {
      const VU32 a = rounding_hashes(key, number);
      const VU32 b = rounding_hashes(key, number + kHalf);
      store_bytes(rounded(x, inverse, low(a)), rounded(x + kHalf, inverse, high(a)),
                  rounded(x + kGroup, inverse, low(b)), rounded(x + kGroup + kHalf, inverse, high(b)), out);
      return;
    }
    for (std::size_t group = 0; group < Core::kBlock; group += kGroup, number += kHalf, x += kGroup, out += kGroup) {
      const auto n = static_cast<std::uint32_t>(lanes());
      const VU32 a = rounding_hashes(key, number);
      const VU32 b = rounding_hashes(key, number + n);
      if (lanes() == 8) {
        store_bytes(rounded(x, inverse, low(a)), rounded(x + n, inverse, low(b)), rounded(x + kHalf, inverse, high(a)),
                    rounded(x + kHalf + n, inverse, high(b)), out);
        continue;
      }
      const VU32 c = rounding_hashes(key, number + 2 * n);
      const VU32 e = rounding_hashes(key, number + 3 * n);
      store_bytes(rounded(x, inverse, low(a)), rounded(x + n, inverse, low(b)), rounded(x + 2 * n, inverse, low(c)),
                  rounded(x + 3 * n, inverse, low(e)), out);
      const float* second = x + kHalf;
      store_bytes(rounded(second, inverse, high(a)), rounded(second + n, inverse, high(b)),
                  rounded(second + 2 * n, inverse, high(c)), rounded(second + 3 * n, inverse, high(e)), out + kHalf);
    }
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
