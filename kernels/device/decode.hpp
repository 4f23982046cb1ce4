// Decoding of one frame by a warp codec, overwriting or adding. A bad header gives NaN everywhere.
// Bytes for each element: the code, the value, and the value once more where it is added to.
#ifndef GRADWIRE_KERNELS_DEVICE_DECODE_HPP
#define GRADWIRE_KERNELS_DEVICE_DECODE_HPP

#include "kernels/device/frame_words.hpp"
#include "kernels/device/warp_codecs.hpp"

namespace gradwire::kernels {

template <class Value>
GRADWIRE_DEVICE Value not_a_number() {
  return static_cast<Value>(bits_as<float>(0x7FC00000U));
}

/// By the whole block that has tile 0.
GRADWIRE_DEVICE void report_header(const CallFields& call, const HeaderCheck& header, int peer) {
  if (simt::thread() == 0) {
    if (!header.good) {
      report_bad(call, peer);
    }
    if (!header.good || header.nonfinite) {
      report_nonfinite(call);
    }
  }
}

/// x, or x added to what is there, into a strip of the values. What narrower types cannot hold is non-finite.
template <class Value>
GRADWIRE_DEVICE void put_strip(const DecodeJob& job, std::uint64_t first, std::uint32_t left, Value (&x)[kHeld]) {
  if (job.add) {
    Value old[kHeld];
    load_values(job.values, job.values_dtype, first, left, old);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = old[r] + x[r];
    }
  }
  const bool finite = store_values(job.values, job.values_dtype, first, left, x);
  if (half_width(job.values_dtype) && simt::ballot(!finite) != 0 && simt::lane() == 0) {
    report_nonfinite(job.call);
  }
}

template <class Codec>
GRADWIRE_KERNEL_OF(sizeof(typename Codec::Value) == 8 ? 2 : 4)
decode_frame(GRADWIRE_PARAMETER(DecodeJob) job) {
  using Value = typename Codec::Value;
  const std::uint32_t step = step_of(job.call);
  const HeaderCheck header = check_header(job.call.codec, job.frame, job.call.bucket, step);
  if (simt::block() == 0) {
    report_header(job.call, header, job.frame.peer);
  }
  const std::uint32_t tiles = tiles_of(job.frame.count);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const TilePlace place = tile_place(job.call, 0, step, job.frame.first_tile, job.frame.count, index);
    const std::uint8_t* payload = job.frame.bytes + tile_offset<typename Codec::Core>(0, index);
    const auto context = Codec::context(place.tile);
    const std::uint32_t all = strips(place.count);
    typename Codec::Raw next{};
    if (simt::warp() < all) {
      next = Codec::fetch(simt::warp(), place.count, payload);
    }
    GRADWIRE_ROLLED
    for (std::uint32_t strip = simt::warp(); strip < all; strip += simt::kWarps) {
      const typename Codec::Raw raw = next;
      if (strip + simt::kWarps < all) {  // asked for before this strip's are waited for
        next = Codec::fetch(strip + simt::kWarps, place.count, payload);
      }
      Value x[kHeld];
      Codec::expand(context, raw, x);
      if (!header.good) {
        GRADWIRE_UNROLL
        for (int r = 0; r < kHeld; ++r) {
          x[r] = not_a_number<Value>();
        }
      }
      put_strip(job, place.first + strip * kStrip, left_of(strip, place.count), x);
    }
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_DECODE_HPP
