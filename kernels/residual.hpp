// The residual of a run of elements: the values that error feedback adds, and the place for what the encoder drops.
#ifndef GRADWIRE_KERNELS_RESIDUAL_HPP
#define GRADWIRE_KERNELS_RESIDUAL_HPP

#include "kernels/platform.hpp"

namespace gradwire::kernels {

/// Two arrays of fp32 that the caller owns, one value for each element. Either both pointers are null or none; they are
/// equal, or their memory does not overlap. An encoder reads `before` and writes all of `after`.
struct Residual {
  const float* before = nullptr;
  float* after = nullptr;

  // NOLINTBEGIN(google-explicit-constructor): most callers have one pointer, or none
  GRADWIRE_HOST_DEVICE constexpr Residual(decltype(nullptr) /*none*/) {}
  GRADWIRE_HOST_DEVICE constexpr Residual(float* both) : before(both), after(both) {}
  // NOLINTEND(google-explicit-constructor)
  GRADWIRE_HOST_DEVICE constexpr Residual(const float* from, float* to) : before(from), after(to) {}

  [[nodiscard]] GRADWIRE_HOST_DEVICE constexpr bool none() const { return after == nullptr; }
  /// The residual from element `first` on.
  [[nodiscard]] GRADWIRE_HOST_DEVICE constexpr Residual from(std::size_t first) const {
    return none() ? *this : Residual(before + first, after + first);
  }
  /// Leaves the residual of `count` elements unchanged.
  GRADWIRE_HOST_DEVICE void keep(std::uint32_t count) const {
    for (std::uint32_t i = 0; before != after && i < count; ++i) {
      after[i] = before[i];
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_RESIDUAL_HPP
