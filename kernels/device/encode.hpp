// Encoding of one frame by a warp codec: x = factor * values + residual, the codes, and the new residual, in one pass.
// A thread block takes a tile, a warp every eighth strip of it; warps share nothing.
// Bytes for each element: the value, the code, and twice the residual.
#ifndef GRADWIRE_KERNELS_DEVICE_ENCODE_HPP
#define GRADWIRE_KERNELS_DEVICE_ENCODE_HPP

#include "kernels/device/frame_words.hpp"
#include "kernels/device/pieces.hpp"
#include "kernels/device/warp_codecs.hpp"

namespace gradwire::kernels {

/// x <- factor * values of a strip; zeros where there are no values.
template <class Job, class Value>
GRADWIRE_DEVICE void load_scaled(const void* values, const PieceTable& pieces, DType dtype, double factor,
                                 std::uint64_t first, std::uint32_t left, Value (&x)[kHeld]) {
  if (!kInPieces<Job> && values == nullptr) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = 0;
    }
    return;
  }
  load_strip_of<Job>(values, pieces, dtype, first, left, x);
  const auto f = static_cast<Value>(factor);
  if (f != 1) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = x[r] * f;
    }
  }
}

/// Encodes x + residual of one strip. Returns whether NaN or Inf was among them, the same in all lanes. The padding of
/// the tile is left to the caller, since its place would take registers beside every strip.
template <class Codec>
GRADWIRE_DEVICE bool encode_strip(const typename Codec::Context& context, std::uint32_t strip, const TilePlace& place,
                                  typename Codec::Value (&x)[kHeld], float* residual, std::uint8_t* payload,
                                  typename Codec::Shared& shared) {
  using Value = typename Codec::Value;
  const std::uint32_t left = remaining_of(strip, place.count);
  const bool keeps = residual != nullptr;
  const auto residuals = [&] { return reinterpret_cast<std::uint8_t*>(residual + (place.first + strip * kStrip)); };
  if (keeps) {
    float old[kHeld];
    load_as<DType::f32>(residuals(), left, old);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = x[r] + static_cast<Value>(old[r]);
    }
  }
  const std::uint32_t bad = Codec::encode(context, strip, x, place.count, payload, shared, keeps);
  if (keeps) {
    if (bad != 0) {  // rare, so x is read again instead of kept in registers
      float old[kHeld];
      load_as<DType::f32>(residuals(), left, old);
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        x[r] = ((bad >> r) & 1U) != 0 ? static_cast<Value>(old[r]) : x[r];
      }
    }
    store_as<DType::f32>(residuals(), left, x);
  }
  return simt::ballot(bad != 0) != 0;
}

/// Marks the frame that has tile `index` of the series. It is found again, since NaN is rare and registers are few.
GRADWIRE_DEVICE void mark_nonfinite_at(const EncodeJob& job, std::uint32_t index) {
  mark_nonfinite(job.call, series_tile(job.frame, job.series, index).frame.place.bytes);
}

/// Encodes a tile; called by the whole block. A lane calls `note` for each strip with NaN or Inf.
template <class Codec, class Job, class Note>
GRADWIRE_DEVICE void encode_tile(const Job& job, const TilePlace& place, std::uint8_t* payload,
                                 typename Codec::Shared& shared, const Note& note) {
  const auto context = Codec::context(place.tile);
  GRADWIRE_ROLLED
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    typename Codec::Value x[kHeld];
    load_scaled<Job>(job.values, job.pieces, job.values_dtype, job.factor, place.first + strip * kStrip,
                     remaining_of(strip, place.count), x);
    const bool bad = encode_strip<Codec>(context, strip, place, x, job.residual, payload, shared);
    if (bad && simt::lane() == 0) {
      note();
    }
  }
  if (simt::warp() == 0) {
    pad_tile(payload, Codec::Core::used_bytes(place.count));
  }
}

/// Encodes tile `index` of the job's frames; called by the whole block.
template <class Codec, class Job>
GRADWIRE_DEVICE void encode_part(const Job& job, std::uint32_t index, std::uint32_t step,
                                 typename Codec::Shared& shared) {
  const SeriesTile at = series_tile(job.frame, job.series, index);
  if (at.tile >= tiles_of(at.frame.place.count)) {
    return;
  }
  const TilePlace place = tile_place(job.call, 0, step, at);
  std::uint8_t* payload = frame_bytes(at.frame.place.bytes) + tile_offset<typename Codec::Core>(0, at.tile);
  const auto note = [&] { mark_nonfinite_at(job, index); };
  if (place.count == kTileElements) {
    encode_tile<Codec>(job, full(place), payload, shared, note);
  } else {
    encode_tile<Codec>(job, place, payload, shared, note);
  }
}

template <class Codec, class Job>
GRADWIRE_KERNEL_OF(kInPieces<Job> ? 4 : Codec::kEncodingBlocks)
encode_frame(GRADWIRE_PARAMETER(Job) job) {
  GRADWIRE_SHARED typename Codec::Shared shared[simt::kWarps];
  const std::uint32_t step = step_of(job.call);
  const std::uint32_t tiles = series_tiles(job.frame, job.series);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    encode_part<Codec>(job, index, step, shared[simt::warp()]);
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_ENCODE_HPP
