// What codecs ask of a run of elements: x = value + residual, the largest |x|, and sums in the one order of the format:
// element i is added to partial i mod 32; then a tree with strides 16, 8, 4, 2, 1.
#ifndef GRADWIRE_KERNELS_RUN_HPP
#define GRADWIRE_KERNELS_RUN_HPP

#include "kernels/numeric.hpp"

namespace gradwire::kernels {

struct Run {
  const float* values;
  float* residual;  // or null
  std::uint32_t count;

  [[nodiscard]] GRADWIRE_HOST_DEVICE float at(std::uint32_t i) const {
    return residual == nullptr ? values[i] : values[i] + residual[i];
  }
};

/// The block of `block` elements at `first`, or what a tile of `count` has left of it.
GRADWIRE_HOST_DEVICE inline Run block_run(const float* values, float* residual, std::uint32_t first,
                                          std::uint32_t block, std::uint32_t count) {
  return {values + first, residual == nullptr ? nullptr : residual + first,
          first + block < count ? block : count - first};
}

/// The bits of the largest |x|; at least kInfinity where NaN or Inf is among them.
GRADWIRE_HOST_DEVICE inline std::uint32_t largest(const Run& run) {
  std::uint32_t absmax = 0;
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const std::uint32_t bits = abs_bits(run.at(i));
    absmax = bits > absmax ? bits : absmax;
  }
  return absmax;
}

/// Nothing was sent: the residual is x.
GRADWIRE_HOST_DEVICE inline void keep_all(const Run& run) {
  for (std::uint32_t i = 0; run.residual != nullptr && i < run.count; ++i) {
    run.residual[i] = run.at(i);
  }
}

class OrderedSum {
 public:
  GRADWIRE_HOST_DEVICE OrderedSum() {
    for (float& partial : partials_) {
      partial = 0.0F;
    }
  }
  GRADWIRE_HOST_DEVICE void add(std::uint32_t i, float x) {
    float& partial = partials_[i % kPartials];
    partial = partial + x;
  }
  /// Once: it uses the partials up.
  GRADWIRE_HOST_DEVICE float total() {
    for (std::uint32_t stride = kPartials / 2; stride > 0; stride /= 2) {
      for (std::uint32_t i = 0; i < stride; ++i) {
        partials_[i] = partials_[i] + partials_[i + stride];
      }
    }
    return partials_[0];
  }

 private:
  static constexpr std::uint32_t kPartials = 32;
  float partials_[kPartials];
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_RUN_HPP
