// bf16: each element rounded to the nearest bf16, ties to even.
#ifndef GRADWIRE_KERNELS_BF16_HPP
#define GRADWIRE_KERNELS_BF16_HPP

#include "kernels/cast.hpp"

namespace gradwire::kernels {

using Bf16 = CastCore<DType::bf16>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_BF16_HPP

// SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_BF16_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_BF16_SIMD_HPP
#undef GRADWIRE_KERNELS_BF16_SIMD_HPP
#else
#define GRADWIRE_KERNELS_BF16_SIMD_HPP
#endif

#include "kernels/cast.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {
using Bf16 = CastSimd<DType::bf16>;
}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
