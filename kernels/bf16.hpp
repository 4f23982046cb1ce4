// bf16: each element rounded to the nearest bf16, ties to even.
#ifndef GRADWIRE_KERNELS_BF16_HPP
#define GRADWIRE_KERNELS_BF16_HPP

#include "kernels/cast.hpp"

namespace gradwire::kernels {

using Bf16 = CastCore<DType::bf16>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_BF16_HPP
