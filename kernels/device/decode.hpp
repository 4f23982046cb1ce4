// Decoding of one frame by a warp codec, overwriting or adding. A bad header gives NaN everywhere.
// Bytes for each element: the code, the value, and the value once more where it is added to.
#ifndef GRADWIRE_KERNELS_DEVICE_DECODE_HPP
#define GRADWIRE_KERNELS_DEVICE_DECODE_HPP

#include "kernels/device/frame_words.hpp"
#include "kernels/device/pieces.hpp"
#include "kernels/device/warp_codecs.hpp"

namespace gradwire::kernels {

template <class Value>
GRADWIRE_DEVICE Value not_a_number() {
  return static_cast<Value>(bits_as<float>(0x7FC00000U));
}

/// Reports a bad header. Called by the whole block that has tile 0.
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

/// Returns whether the frame at `at` has the expected header. The block that has its first tile reports it.
GRADWIRE_DEVICE bool check_frame(const DecodeJob& job, const SeriesTile& at, std::uint32_t step) {
  const HeaderCheck header = check_header(job.call.codec, at.frame.place, job.call.bucket, step);
  if (at.tile == 0) {
    report_header(job.call, header, at.frame.place.peer);
  }
  return header.good;
}

/// Stores x, or adds it, to a strip of the values. Values that a narrower type cannot hold count as non-finite. A
/// kernel whose jobs never add says so by `kAdds`, and needs fewer registers.
template <bool kAdds, class Job, class Value>
GRADWIRE_DEVICE void put_strip(const Job& job, std::uint64_t first, std::uint32_t left, Value (&x)[kHeld]) {
  if (kAdds && job.add) {
    Value old[kHeld];
    load_strip_of<Job>(job.values, job.pieces, job.values_dtype, first, left, old);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = old[r] + x[r];
    }
  }
  const bool finite = store_strip_of<Job>(job.values, job.pieces, job.values_dtype, first, left, x);
  if (half_width(job.values_dtype) && simt::ballot(!finite) != 0 && simt::lane() == 0) {
    report_nonfinite(job.call);
  }
}

/// Decodes the values of one strip from its bytes, which were fetched before.
template <class Codec, bool kAdds, class Job>
GRADWIRE_DEVICE void decode_strip(const Job& job, const typename Codec::Context& context, const TilePlace& place,
                                  std::uint32_t strip, const typename Codec::Raw& raw, bool good) {
  using Value = typename Codec::Value;
  Value x[kHeld];
  Codec::expand(context, raw, x);
  if (!good) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = not_a_number<Value>();
    }
  }
  put_strip<kAdds>(job, place.first + strip * kStrip, remaining_of(strip, place.count), x);
}

/// Decodes a tile; called by the whole block. A warp fetches all its strips together.
template <class Codec, bool kAdds = true, class Job>
GRADWIRE_DEVICE void decode_full_tile(const Job& job, const TilePlace& place, const std::uint8_t* payload, bool good) {
  constexpr std::uint32_t kMine = kTileElements / kStrip / simt::kWarps;
  const auto context = Codec::context(place.tile);
  typename Codec::Raw raw[kMine];
  GRADWIRE_UNROLL
  for (std::uint32_t i = 0; i < kMine; ++i) {
    raw[i] = Codec::fetch(simt::warp() + i * simt::kWarps, kTileElements, payload);
  }
  GRADWIRE_UNROLL
  for (std::uint32_t i = 0; i < kMine; ++i) {
    decode_strip<Codec, kAdds>(job, context, place, simt::warp() + i * simt::kWarps, raw[i], good);
  }
}

template <class Codec, bool kAdds = true, class Job>
GRADWIRE_DEVICE void decode_tile(const Job& job, const TilePlace& place, const std::uint8_t* payload, bool good) {
  const auto context = Codec::context(place.tile);
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    decode_strip<Codec, kAdds>(job, context, place, strip, Codec::fetch(strip, place.count, payload), good);
  }
}

/// Decodes tile `index` of the job's frames; called by the whole block.
template <class Codec, class Job>
GRADWIRE_DEVICE void decode_part(const Job& job, std::uint32_t index, std::uint32_t step) {
  const SeriesTile at = series_tile(job.frame, job.series, index);
  const bool good = check_frame(job, at, step);
  if (at.tile >= tiles_of(at.frame.place.count)) {
    return;
  }
  const TilePlace place = tile_place(job.call, 0, step, at);
  const std::uint8_t* payload = frame_bytes(at.frame.place.bytes) + tile_offset<typename Codec::Core>(0, at.tile);
  if (place.count == kTileElements) {
    decode_full_tile<Codec>(job, full(place), payload, good);
  } else {
    decode_tile<Codec>(job, place, payload, good);
  }
}

/// The number of blocks that fit on a processor.
template <class Codec, class Job>
inline constexpr int kDecodingBlocks = sizeof(typename Codec::Value) == 8 ? 2
                                       : kInPieces<Job>                   ? 4
                                                                          : 5;

template <class Codec, class Job>
GRADWIRE_KERNEL_OF((kDecodingBlocks<Codec, Job>))
decode_frame(GRADWIRE_PARAMETER(Job) job) {
  const std::uint32_t step = step_of(job.call);
  const std::uint32_t tiles = series_tiles(job.frame, job.series);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    decode_part<Codec>(job, index, step);
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_DECODE_HPP
