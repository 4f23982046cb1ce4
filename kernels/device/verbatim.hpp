// The codec exact over 16-bit tensors, without arithmetic: the bits stay the same, so that a NaN keeps its payload.
// (Over f32 and f64 the ordinary kernels keep the bits too, since their working type is the tensor's.)
#ifndef GRADWIRE_KERNELS_DEVICE_VERBATIM_HPP
#define GRADWIRE_KERNELS_DEVICE_VERBATIM_HPP

#include "kernels/device/decode.hpp"
#include "kernels/device/encode.hpp"

namespace gradwire::kernels {

using HalfCore = CastCore<DType::f16>;  // for sizes, which are the same for bf16

GRADWIRE_DEVICE bool all_finite(DType dtype, const std::uint16_t (&bits)[kHeld]) {
  const std::uint32_t exponent = dtype == DType::f16 ? Element<DType::f16>::kExponent : Element<DType::bf16>::kExponent;
  bool finite = true;
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    finite = finite && (bits[r] & exponent) != exponent;
  }
  return finite;
}

GRADWIRE_KERNEL encode_verbatim(GRADWIRE_PARAMETER(EncodeJob) job) {
  const std::uint32_t tiles = series_tiles(job.frame, job.series);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const SeriesTile at = series_tile(job.frame, job.series, index);
    if (at.tile >= tiles_of(at.frame.place.count)) {
      continue;
    }
    const TilePlace place = tile_place(job.call, 0, 0, at);
    std::uint8_t* payload = at.frame.place.bytes + tile_offset<HalfCore>(0, at.tile);
    for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
      const std::uint32_t left = remaining_of(strip, place.count);
      std::uint16_t bits[kHeld];
      load_elements(strip_part(job.values, job.pieces, place.first + strip * kStrip, left), left, bits);
      store_elements(payload + strip * kStrip * 2, left, bits);
      if (strip + 1 == strips(place.count)) {
        pad_tile(payload, HalfCore::used_bytes(place.count));
      }
      if (simt::ballot(!all_finite(job.values_dtype, bits)) != 0 && simt::lane() == 0) {
        mark_nonfinite_at(job, index);
      }
    }
  }
}

GRADWIRE_KERNEL decode_verbatim(GRADWIRE_PARAMETER(DecodeJob) job) {
  const std::uint32_t tiles = series_tiles(job.frame, job.series);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const SeriesTile at = series_tile(job.frame, job.series, index);
    const bool good = check_frame(job, at, step_of(job.call));
    if (at.tile >= tiles_of(at.frame.place.count)) {
      continue;
    }
    const TilePlace place = tile_place(job.call, 0, 0, at);
    const std::uint8_t* payload = at.frame.place.bytes + tile_offset<HalfCore>(0, at.tile);
    for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
      const std::uint32_t left = remaining_of(strip, place.count);
      std::uint16_t bits[kHeld];
      load_elements(payload + strip * kStrip * 2, left, bits);
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        bits[r] = good ? bits[r] : std::uint16_t{0x7FFF};  // NaN in both types
      }
      store_elements(strip_part(job.values, job.pieces, place.first + strip * kStrip, left), left, bits);
      if (simt::ballot(!all_finite(job.values_dtype, bits)) != 0 && simt::lane() == 0) {
        report_nonfinite(job.call);
      }
    }
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_VERBATIM_HPP
