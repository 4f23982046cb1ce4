// exact: the tensor's own element type, bytes untouched. Sums are in f32, or f64 over f64 tensors, and round once when
// they are encoded.
#ifndef GRADWIRE_KERNELS_EXACT_HPP
#define GRADWIRE_KERNELS_EXACT_HPP

#include "kernels/cast.hpp"

namespace gradwire::kernels {

template <DType kTensor>
struct Exact : CastCore<kTensor> {
  using Stored = typename CastCore<kTensor>::Stored;

  /// A tile of the tensor as it is; returns whether NaN or Inf was seen.
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
