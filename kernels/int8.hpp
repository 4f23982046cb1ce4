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

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
using V8 = hn::Vec<hn::Repartition<std::int8_t, F32>>;
using V16 = hn::Vec<hn::Repartition<std::int16_t, F32>>;

// Inside each block of 16 bytes: the 8 numbers of `a`, then those of `b`.
HWY_INLINE V8 pack(V16 a, V16 b) {
#if HWY_TARGET <= HWY_AVX3
  return V8{_mm512_packs_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V8{_mm256_packs_epi16(a.raw, b.raw)};
#else
  return V8{_mm_packs_epi16(a.raw, b.raw)};
#endif
}

// Two packings leave 4 codes of each of the four vectors in each block of 16 bytes: where word i must come from.
HWY_INLINE const std::int32_t* packed_order() {
  alignas(64) static constexpr std::int32_t k128[4] = {0, 1, 2, 3};
  alignas(64) static constexpr std::int32_t k256[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  alignas(64) static constexpr std::int32_t k512[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  return lanes() == 4 ? k128 : (lanes() == 8 ? k256 : k512);
}
#endif

struct Int8Lanes {
  using I8 = hn::Rebind<std::int8_t, F32>;

  // |x| stays below 127.5, since S was rounded up: no clamp.
  static HWY_INLINE VI32 quantize(VF32 x) {
    const VF32 shifted = x + hn::Set(F32(), 12582912.0F);  // as round_to_int; NearestInt also guards against overflow
    return hn::BitCast(I32(), shifted) - hn::Set(I32(), 0x4B400000);
  }
  static HWY_INLINE VF32 level(VI32 codes) { return hn::ConvertTo(F32(), codes); }

  static HWY_INLINE void store(VI32 c0, VI32 c1, VI32 c2, VI32 c3, std::uint8_t* out) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
    const hn::Repartition<std::int16_t, F32> d16;
    const auto packed = pack(hn::ReorderDemote2To(d16, c0, c1), hn::ReorderDemote2To(d16, c2, c3));
    const auto order = hn::SetTableIndices(I32(), packed_order());
    const auto codes = hn::TableLookupLanes(hn::BitCast(I32(), packed), order);
    hn::StoreU(codes, I32(), reinterpret_cast<std::int32_t*>(out));
#else
    const std::size_t n = lanes();
    auto* to = reinterpret_cast<std::int8_t*>(out);
    hn::StoreU(hn::DemoteTo(I8(), c0), I8(), to);
    hn::StoreU(hn::DemoteTo(I8(), c1), I8(), to + n);
    hn::StoreU(hn::DemoteTo(I8(), c2), I8(), to + 2 * n);
    hn::StoreU(hn::DemoteTo(I8(), c3), I8(), to + 3 * n);
#endif
  }
  static HWY_INLINE VI32 load(const std::uint8_t* in) {
    return hn::PromoteTo(I32(), hn::LoadU(I8(), reinterpret_cast<const std::int8_t*>(in)));
  }
};

using Int8 = BlockSimd<Int8Rule, Int8Lanes>;

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
