// Preconditioned encoding on a device: the powers of a scale, a byte an element, and values divided or multiplied by
// them. These kernels run before and after those of the codecs, which know nothing of scales.
#ifndef GRADWIRE_KERNELS_DEVICE_RESCALE_HPP
#define GRADWIRE_KERNELS_DEVICE_RESCALE_HPP

#include "kernels/device/elementwise.hpp"
#include "kernels/device/frame_words.hpp"
#include "kernels/device/jobs.hpp"
#include "kernels/scale.hpp"

namespace gradwire::kernels {

struct ScaleJob {
  const float* scale;
  std::uint64_t count;
  std::uint8_t* powers;
};

GRADWIRE_HOST_DEVICE constexpr std::uint64_t scale_tiles(std::uint64_t count) {
  return count / kTileElements + (count % kTileElements != 0 ? 1 : 0);
}

/// The largest value of the block, in all threads. Ends with a barrier.
GRADWIRE_DEVICE std::uint32_t block_max(std::uint32_t value, std::uint32_t (&of_warp)[simt::kWarps]) {
  value = simt::warp_max(value);
  if (simt::lane() == 0) {
    of_warp[simt::warp()] = value;
  }
  simt::sync();
  GRADWIRE_UNROLL
  for (std::uint32_t w = 0; w < simt::kWarps; ++w) {
    value = of_warp[w] > value ? of_warp[w] : value;
  }
  simt::sync();
  return value;
}

/// A thread block takes a tile and holds it in registers. Bytes for each element: 4 read, 1 written.
GRADWIRE_KERNEL measure_tiles(GRADWIRE_PARAMETER(ScaleJob) job) {
  constexpr std::uint32_t kMine = kTileElements / kStrip / simt::kWarps;
  GRADWIRE_SHARED std::uint32_t of_warp[simt::kWarps];
  for (std::uint64_t tile = simt::block(); tile < scale_tiles(job.count); tile += simt::blocks()) {
    std::uint32_t exponent[kMine][kHeld];
    std::uint32_t largest = 0;
    GRADWIRE_UNROLL
    for (std::uint32_t i = 0; i < kMine; ++i) {
      const std::uint64_t first = tile * kTileElements + (simt::warp() + i * simt::kWarps) * kStrip;
      const std::uint32_t left = first < job.count ? strip_left(first, job.count) : 0;
      load_elements(reinterpret_cast<const std::uint8_t*>(job.scale + first), left, exponent[i]);
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        exponent[i][r] = static_cast<std::uint32_t>(scale_exponent(exponent[i][r]));
        largest = exponent[i][r] > largest ? exponent[i][r] : largest;
      }
    }
    largest = block_max(largest, of_warp);
    GRADWIRE_UNROLL
    for (std::uint32_t i = 0; i < kMine; ++i) {
      const std::uint64_t first = tile * kTileElements + (simt::warp() + i * simt::kWarps) * kStrip;
      const std::uint32_t left = first < job.count ? strip_left(first, job.count) : 0;
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        exponent[i][r] = static_cast<std::uint32_t>(
            scale_power(static_cast<std::int32_t>(largest), static_cast<std::int32_t>(exponent[i][r])));
      }
      store_packed(job.powers + first, left, pack<std::uint8_t>(exponent[i]));
    }
  }
}

/// Bytes for each element: both values and the power.
GRADWIRE_KERNEL rescale_elements(GRADWIRE_PARAMETER(RescaleJob) job) {
  const auto factor = static_cast<float>(job.factor);
  for_each_strip(job.count, [&](std::uint64_t first, std::uint32_t left) {
    float x[kHeld];
    load_values(job.from, job.from_dtype, first, left, x);
    const auto powers = load_packed<std::uint8_t>(job.powers + first, left);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const auto power = static_cast<std::int32_t>(powers.element(r));
      x[r] = factor == 1 ? x[r] : x[r] * factor;
      x[r] = x[r] * (job.divides ? scale_reciprocal(power) : scale_itself(power));
    }
    const bool finite = store_values(job.to, job.to_dtype, first, left, x);
    if (half_width(job.to_dtype) && simt::ballot(!finite) != 0 && simt::lane() == 0) {
      report_nonfinite(job);
    }
  });
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_RESCALE_HPP
