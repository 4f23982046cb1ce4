// exact: the tensor's own element type, bytes untouched. Sums are in f32, or f64 over f64 tensors, and round once when
// they are encoded.
#ifndef GRADWIRE_KERNELS_EXACT_HPP
#define GRADWIRE_KERNELS_EXACT_HPP

#include "kernels/cast.hpp"

namespace gradwire::kernels {

template <DType kTensor>
struct Exact : CastCore<kTensor> {
  using Stored = typename CastCore<kTensor>::Stored;

  /// Copies a tile of the tensor as it is; returns whether NaN or Inf was seen.
  GRADWIRE_HOST_DEVICE static bool copy(const void* elements, std::uint32_t count, std::uint8_t* out) {
    constexpr Stored kExponent = Element<kTensor>::kExponent;
    bool nonfinite = false;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Stored bits = load<Stored>(elements, i);
      store(out, i, bits);
      nonfinite = nonfinite || (bits & kExponent) == kExponent;
    }
    fill_padding(out, CastCore<kTensor>::used_bytes(count));
    return nonfinite;
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_EXACT_HPP

// SIMD, for all but f64, whose scalar loops compilers vectorise.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_EXACT_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_EXACT_SIMD_HPP
#undef GRADWIRE_KERNELS_EXACT_SIMD_HPP
#else
#define GRADWIRE_KERNELS_EXACT_SIMD_HPP
#endif

#include "kernels/cast.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

template <DType kTensor>
struct Exact : CastSimd<kTensor> {
  using Stored = typename kernels::Exact<kTensor>::Stored;

  static bool copy(const void* elements, std::uint32_t count, std::uint8_t* out) {
    const hn::ScalableTag<Stored> d;
    const auto exponent = hn::Set(d, Element<kTensor>::kExponent);
    const auto n = static_cast<std::uint32_t>(hn::Lanes(d));
    const auto* in = static_cast<const std::uint8_t*>(elements);
    auto bad = hn::MaskFromVec(hn::Zero(d));
    std::uint32_t i = 0;
    for (; i + n <= count; i += n) {
      const auto bits = hn::LoadU(d, reinterpret_cast<const Stored*>(in + i * sizeof(Stored)));
      hn::StoreU(bits, d, reinterpret_cast<Stored*>(out + i * sizeof(Stored)));
      bad = hn::Or(bad, hn::Eq(hn::And(bits, exponent), exponent));
    }
    const bool tail = kernels::Exact<kTensor>::copy(in + i * sizeof(Stored), count - i, out + i * sizeof(Stored));
    return !hn::AllFalse(d, bad) || tail;
  }
};

template <>
struct Exact<DType::f64> : kernels::Exact<DType::f64> {};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
