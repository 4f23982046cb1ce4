// int8: blocks of 256, S = absmax/127 rounded up, code = x/S to the nearest.
#ifndef GRADWIRE_KERNELS_INT8_HPP
#define GRADWIRE_KERNELS_INT8_HPP

#include "kernels/block.hpp"

namespace gradwire::kernels {

struct Int8Rule {
  using Code = std::int8_t;
  static constexpr std::uint32_t kBlock = 256;
  static constexpr std::uint32_t kRare = kInfinity;

  GRADWIRE_HOST_DEVICE static std::uint16_t scale(std::uint32_t absmax_bits) {
    return scale_round_up(bits_as<float>(absmax_bits) / 127.0F);
  }
  GRADWIRE_HOST_DEVICE static Code quantize(float x, float inverse) {
    const std::int32_t q = round_to_int(x * inverse);
    return static_cast<Code>(q > 127 ? 127 : (q < -127 ? -127 : q));
  }
  GRADWIRE_HOST_DEVICE static float level(Code code) { return static_cast<float>(code); }
};

using Int8 = BlockCore<Int8Rule>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_INT8_HPP

// SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_INT8_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_INT8_SIMD_HPP
#undef GRADWIRE_KERNELS_INT8_SIMD_HPP
#else
#define GRADWIRE_KERNELS_INT8_SIMD_HPP
#endif

#include "kernels/block.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

struct Int8Lanes {
  // |x| stays below 127.5, since S was rounded up: no clamp.
  static HWY_INLINE VI32 quantize(VF32 x) {
    const VF32 shifted = x + hn::Set(F32(), 12582912.0F);  // as round_to_int; NearestInt also guards against overflow
    return hn::BitCast(I32(), shifted) - hn::Set(I32(), 0x4B400000);
  }
  static HWY_INLINE VF32 level(VI32 codes) { return hn::ConvertTo(F32(), codes); }

  static HWY_INLINE void store(VI32 c0, VI32 c1, VI32 c2, VI32 c3, std::uint8_t* out) {
    store_bytes(c0, c1, c2, c3, out);
  }
  static HWY_INLINE VI32 load(const std::uint8_t* in) { return load_bytes(in); }
};

using Int8 = BlockSimd<Int8Rule, Int8Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
