// Frames of codecs behind topk: a thread block takes a tile.
// Bytes for each element: encoding reads the value and reads and writes the residual, decoding writes the value; the
// selected elements are few beside that.
#ifndef GRADWIRE_KERNELS_DEVICE_SELECTED_HPP
#define GRADWIRE_KERNELS_DEVICE_SELECTED_HPP

#include "kernels/device/codec_table.hpp"
#include "kernels/device/decode.hpp"
#include "kernels/device/encode.hpp"
#include "kernels/device/indices.hpp"
#include "kernels/device/select.hpp"

namespace gradwire::kernels {

/// Bytes of a tile of `count` elements.
GRADWIRE_DEVICE std::uint32_t selected_tile_bytes(const FrameCodec& codec, std::uint32_t count) {
  std::uint32_t bytes = 0;
  const auto add = [&]<class Selected>(Type<Selected>) { bytes = TopK<Selected>::tile_bytes(codec.k, count); };
  works_in_f64(codec) ? with_selected<double>(codec, add) : with_selected<float>(codec, add);
  return bytes;
}

template <class Selected, class Job>
GRADWIRE_KERNEL_OF(sizeof(typename Selected::Value) == 8 || kInPieces<Job> ? 5 : 6)
encode_selected(GRADWIRE_PARAMETER(Job) job) {
  using Value = typename Selected::Value;
  GRADWIRE_SHARED SelectShared<Value> shared;
  const std::uint32_t step = step_of(job.call);
  const std::uint32_t k = job.call.codec.k;
  const std::uint32_t tiles = series_tiles(job.frame, job.series);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const SeriesTile at = series_tile(job.frame, job.series, index);
    if (at.tile >= tiles_of(at.frame.place.count)) {
      continue;
    }
    const TilePlace place = tile_place(job.call, k, step, at);
    std::uint8_t* payload = at.frame.place.bytes + tile_offset<TopK<Selected>>(k, at.tile);
    for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
      Value x[kHeld];
      const std::uint64_t first = place.first + strip * kStrip;
      load_scaled<Job>(job.values, job.pieces, job.values_dtype, job.factor, first, remaining_of(strip, place.count),
                       x);
      if (job.residual != nullptr) {
        add_residual(job.residual, first, remaining_of(strip, place.count), x);
      }
      store_strip(shared, strip, x);
    }
    simt::sync();
    const bool bad = encode_selected_tile(shared, place, job.residual, payload, [&](const IndexCode& code) {
      return put_selected<Selected>(shared, code, payload, job.residual != nullptr);
    });
    if (bad && simt::thread() == 0) {
      mark_nonfinite_at(job, index);
    }
  }
}

/// Decodes the j-th of the values behind the indices.
template <class Value>
GRADWIRE_DEVICE Value selected_value(const FrameCodec& codec, const std::uint8_t* in, std::uint32_t j) {
  Value x = 0;
  with_selected<Value>(codec, [&]<class Selected>(Type<Selected>) { x = WarpSelected<Selected>::decode(in, j); });
  return x;
}

/// Element `at` of the values <- x, or += x. Returns whether the stored element, in its type, is finite.
template <class Value>
GRADWIRE_DEVICE bool put_element(const DecodeJob& job, std::uint64_t at, Value x) {
  const auto put = [&]<DType kType>() {
    using E = Element<kType>;
    auto* to = element_at<typename E::Stored>(job.values, job.pieces, at);
    if (job.add) {
      x = static_cast<Value>(E::value(load_one(to))) + x;
    }
    const auto bits = E::stored(static_cast<typename E::Value>(x));
    store_one(to, bits);
    return (bits & E::kExponent) != E::kExponent;
  };
  if constexpr (sizeof(Value) == 8) {
    return put.template operator()<DType::f64>();
  } else {
    switch (job.values_dtype) {
      case DType::f16: return put.template operator()<DType::f16>();
      case DType::bf16: return put.template operator()<DType::bf16>();
      case DType::f64: return put.template operator()<DType::f64>();
      default: return put.template operator()<DType::f32>();
    }
  }
}

/// Fills a tile with one value: zeros before the selected values are stored, or NaN.
template <class Value>
GRADWIRE_DEVICE void fill_tile(const DecodeJob& job, const TilePlace& place, Value value) {
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    Value x[kHeld];
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = value;
    }
    const std::uint32_t left = remaining_of(strip, place.count);
    store_values(strip_part(job.values, job.pieces, place.first + strip * kStrip, left), job.values_dtype, left, x);
  }
}

template <class Value>
GRADWIRE_KERNEL decode_selected(GRADWIRE_PARAMETER(DecodeJob) job) {
  const std::uint32_t step = step_of(job.call);
  const FrameCodec& codec = job.call.codec;
  const std::uint32_t tiles = series_tiles(job.frame, job.series);
  const std::uint32_t tile_bytes = selected_tile_bytes(codec, kTileElements);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const SeriesTile at = series_tile(job.frame, job.series, index);
    const bool good = check_frame(job, at, step);
    if (at.tile >= tiles_of(at.frame.place.count)) {
      continue;
    }
    const TilePlace place = tile_place(job.call, codec.k, step, at);
    const std::uint8_t* payload = at.frame.place.bytes + kHeaderBytes + std::uint64_t{at.tile} * tile_bytes;
    const IndexCode code = index_code(place.count, selected_count(codec.k, place.count));
    if (good && !job.add) {
      if (simt::warp() == 0) {
        prefetch_selected(payload, selected_tile_bytes(codec, place.count));  // the last tile may be short
      }
      fill_tile(job, place, Value{0});
      simt::sync();
    }
    bool bad = !good;
    if (good) {
      const std::uint8_t* coded = payload + code.bytes();
      bad = !for_indices(payload, place.count, code, [&](std::uint32_t j, std::uint32_t element) {
        const Value x = selected_value<Value>(codec, coded, j);
        if (!put_element(job, place.first + element, x) && half_width(job.values_dtype)) {
          report_nonfinite(job.call);
        }
      });
    }
    if (simt::sync_or(bad)) {  // overwrites the elements that were stored already
      if (good && simt::thread() == 0) {
        report_bad(job.call, at.frame.place.peer);
        report_nonfinite(job.call);
      }
      fill_tile(job, place, not_a_number<Value>());
    }
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_SELECTED_HPP
