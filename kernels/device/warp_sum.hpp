// The ordered sum of kernels/run.hpp over a strip: element i is added to partial i mod 32, then a tree adds the
// partials. Lane p computes partial p, and gets its elements through the warp's shared memory.
#ifndef GRADWIRE_KERNELS_DEVICE_WARP_SUM_HPP
#define GRADWIRE_KERNELS_DEVICE_WARP_SUM_HPP

#include "kernels/device/strip.hpp"

namespace gradwire::kernels {

struct alignas(16) WarpSums {
  std::uint32_t bits[kStrip];  // bits of floats
};

/// Adds the partials of all lanes by the tree; all lanes get the sum.
GRADWIRE_DEVICE float sum_partials(float partial) {
  GRADWIRE_UNROLL
  for (std::uint32_t stride = simt::kLanes / 2; stride > 0; stride /= 2) {
    partial = partial + simt::shuffle_xor(partial, stride);
  }
  return partial;
}

/// Elements behind a short strip must be 0, which changes no sum of magnitudes or squares.
GRADWIRE_DEVICE float ordered_sum(const float (&x)[kHeld], WarpSums& shared) {
  const std::uint32_t lane = simt::lane();
  GRADWIRE_UNROLL
  for (int h = 0; h < 2; ++h) {
    Quad<std::uint32_t> quad;
    GRADWIRE_UNROLL
    for (int c = 0; c < 4; ++c) {
      quad.element[c] = bits_as<std::uint32_t>(x[4 * h + c]);
    }
    store_quad(shared.bits + element_of(lane, 4 * h), quad);
  }
  simt::sync_warp();
  float partial = 0;
  GRADWIRE_UNROLL
  for (std::uint32_t i = 0; i < kStrip; i += simt::kLanes) {
    partial = partial + bits_as<float>(shared.bits[i + lane]);
  }
  simt::sync_warp();  // the next strip may overwrite `shared` only now
  return sum_partials(partial);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_SUM_HPP
