// The common base of the SIMD parts. Each is included once for every instruction set, inside a namespace of that set,
// and must give the bytes of the scalar core. It handles whole blocks; the rest of a tile goes through the scalar core.
// Multiply and add stay two operations (no MulAdd).
#if defined(GRADWIRE_KERNELS_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_SIMD_HPP
#undef GRADWIRE_KERNELS_SIMD_HPP
#else
#define GRADWIRE_KERNELS_SIMD_HPP
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/numeric.hpp"

// Highway's SCALAR has vectors of one lane and lacks operations that the parts use; our own scalar core replaces it.
#if HWY_TARGET != HWY_SCALAR

HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::Rebind<std::int32_t, F32>;
using U32 = hn::Rebind<std::uint32_t, F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using I8 = hn::Rebind<std::int8_t, F32>;
using VF32 = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;
using VU32 = hn::Vec<U32>;
// Vectors of the same size, of smaller lanes.
using B16 = hn::Repartition<std::int16_t, F32>;
using B8 = hn::Repartition<std::int8_t, F32>;
using BU8 = hn::Repartition<std::uint8_t, F32>;
using V16 = hn::Vec<B16>;
using V8 = hn::Vec<B8>;
using VU8 = hn::Vec<BU8>;

/// Lanes of a vector of 32-bit elements; a power of two.
HWY_INLINE std::size_t lanes() { return hn::Lanes(F32()); }

HWY_INLINE VU32 abs_bits(VF32 x) { return hn::And(hn::BitCast(U32(), x), hn::Set(U32(), kAbsMask)); }

/// to_bf16 of each lane, in the low half of the lane.
HWY_INLINE VU32 to_bf16(VF32 x) {
  const U32 d;
  const VU32 bits = hn::BitCast(d, x);
  const VU32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const VU32 rounded = hn::ShiftRight<16>(bits + hn::Set(d, 0x7FFF) + odd);
  const auto nan = hn::RebindMask(d, hn::IsNaN(x));
  return hn::IfThenElse(nan, hn::Set(d, kNanBf16), rounded);
}

HWY_INLINE VF32 from_bf16(VU32 bits) { return hn::BitCast(F32(), hn::ShiftLeft<16>(bits)); }

/// to_f16 of each lane, in the low half of the lane.
HWY_INLINE VU32 to_f16(VF32 x) {
  const U32 d;
  const auto nan = hn::RebindMask(d, hn::IsNaN(x));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
  const hn::Rebind<hwy::float16_t, F32> half;
  const VU32 value = hn::PromoteTo(d, hn::BitCast(U16(), hn::DemoteTo(half, x)));
#else
  const F32 df;
  const VU32 bits = hn::BitCast(d, x);
  const VU32 magnitude = abs_bits(x);
  const VU32 sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000));
  const VU32 odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
  const VU32 normal = hn::ShiftRight<13>(magnitude - hn::Set(d, 0x38000000U) + hn::Set(d, 0xFFF) + odd);
  const VU32 small = hn::BitCast(d, hn::BitCast(df, magnitude) + hn::Set(df, 0.5F)) - hn::Set(d, 0x3F000000U);
  const I32 di;  // magnitudes compare as signed integers
  const VI32 order = hn::BitCast(di, magnitude);
  const auto is_small = hn::RebindMask(d, hn::Lt(order, hn::Set(di, 0x38800000)));
  const auto is_large = hn::RebindMask(d, hn::Gt(order, hn::Set(di, 0x477FFFFF)));
  const VU32 finite = hn::IfThenElse(is_small, small, normal);
  const VU32 value = hn::Or(sign, hn::IfThenElse(is_large, hn::Set(d, 0x7C00), finite));
#endif
  return hn::IfThenElse(nan, hn::Set(d, kNanF16), value);
}

HWY_INLINE VF32 from_f16(VU32 half) {
  const U32 d;
  const F32 df;
  const VU32 sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d, 0x8000)));
  const VU32 magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(d, 0x7FFF)));
  const auto special = hn::RebindMask(d, hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x0F7FFFFF)));
  const VU32 finite = hn::BitCast(d, hn::BitCast(df, magnitude) * hn::Set(df, 0x1p112F));
  return hn::BitCast(df, hn::Or(sign, hn::IfThenElse(special, magnitude + hn::Set(d, 0x70000000U), finite)));
}

/// Prefetches the cache line a page beyond `address`: the processor by itself prefetches only up to the end of a page.
/// The line may lie behind the end of an array, since nothing reads it here.
HWY_INLINE void prefetch_page_ahead(const void* address) {
  hwy::Prefetch(static_cast<const std::uint8_t*>(address) + 4096);
}

/// Prefetches a cache line that is needed later, into the second level, since data that is needed now fills the first
/// one. The line may lie behind the end of an array here too.
HWY_INLINE void prefetch_later(const void* address) { __builtin_prefetch(address, 0, 2); }

// Narrowing, here and in ReorderDemote2To, works inside blocks of 16 bytes where that is cheaper: a block holds numbers
// of `a`, then those of `b`. Saturates.
HWY_INLINE V8 pack(V16 a, V16 b) {
#if HWY_TARGET <= HWY_AVX3
  return V8{_mm512_packs_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V8{_mm256_packs_epi16(a.raw, b.raw)};
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
  return V8{_mm_packs_epi16(a.raw, b.raw)};
#else
  const hn::Half<B8> half;
  return hn::Combine(B8(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}
HWY_INLINE VU8 pack_unsigned(V16 a, V16 b) {
#if HWY_TARGET <= HWY_AVX3
  return VU8{_mm512_packus_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VU8{_mm256_packus_epi16(a.raw, b.raw)};
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
  return VU8{_mm_packus_epi16(a.raw, b.raw)};
#else
  const hn::Half<BU8> half;
  return hn::Combine(BU8(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

/// Bytes of four vectors, narrowed twice, in order.
template <class V>
HWY_INLINE V unpacked_order(V bytes) {
  // Each block has 4 bytes of each of the four: where word i must come from.
  alignas(64) static constexpr std::int32_t k256[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  alignas(64) static constexpr std::int32_t k512[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const I32 d;
  if (lanes() == 4) {
    return bytes;
  }
  const auto order = hn::SetTableIndices(d, lanes() == 8 ? k256 : k512);
  return hn::BitCast(hn::DFromV<V>(), hn::TableLookupLanes(hn::BitCast(d, bytes), order));
}

/// Four vectors of lanes from -128 to 127 as signed bytes, in order.
HWY_INLINE void store_bytes(VI32 c0, VI32 c1, VI32 c2, VI32 c3, std::uint8_t* out) {
  const B16 d;
  const V8 packed = pack(hn::ReorderDemote2To(d, c0, c1), hn::ReorderDemote2To(d, c2, c3));
  hn::StoreU(unpacked_order(packed), B8(), reinterpret_cast<std::int8_t*>(out));
}
/// Loads one vector of signed bytes.
HWY_INLINE VI32 load_bytes(const std::uint8_t* in) {
  return hn::PromoteTo(I32(), hn::LoadU(I8(), reinterpret_cast<const std::int8_t*>(in)));
}

/// x = value + residual.
template <bool kResidual>
HWY_INLINE VF32 input(const float* values, const float* residual, std::size_t i) {
  const F32 d;
  const VF32 x = hn::LoadU(d, values + i);
  if constexpr (kResidual) {
    return x + hn::LoadU(d, residual + i);
  }
  return x;
}

/// The bits of the largest |x| of kCount elements, a multiple of 64.
template <std::uint32_t kCount, bool kResidual>
HWY_INLINE std::uint32_t largest(const float* values, const float* residual) {
  const I32 d;
  const std::size_t n = lanes();
  VI32 m0 = hn::Zero(d);
  VI32 m1 = m0;
  VI32 m2 = m0;
  VI32 m3 = m0;
  for (std::size_t i = 0; i < kCount; i += 4 * n) {
    m0 = hn::Max(m0, hn::BitCast(d, abs_bits(input<kResidual>(values, residual, i))));
    m1 = hn::Max(m1, hn::BitCast(d, abs_bits(input<kResidual>(values, residual, i + n))));
    m2 = hn::Max(m2, hn::BitCast(d, abs_bits(input<kResidual>(values, residual, i + 2 * n))));
    m3 = hn::Max(m3, hn::BitCast(d, abs_bits(input<kResidual>(values, residual, i + 3 * n))));
  }
  const VI32 m = hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, m)));
}

/// Stores the low halves of the lanes, in order, and loads them again.
HWY_INLINE void store_u16(VU32 values, std::uint8_t* out) {
  const auto narrow = hn::DemoteTo(U16(), hn::BitCast(I32(), values));  // saturates; the values fit
  hn::StoreU(narrow, U16(), reinterpret_cast<std::uint16_t*>(out));
}
HWY_INLINE VU32 load_u16(const std::uint8_t* in) {
  return hn::PromoteTo(U32(), hn::LoadU(U16(), reinterpret_cast<const std::uint16_t*>(in)));
}

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
