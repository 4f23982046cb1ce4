// Sums of frames behind topk, or of codecs that differ: the same as kernels/device/reduce.hpp, with a tile's sum in
// shared memory. A thread block takes a tile; frames behind topk touch only the selected elements.
#ifndef GRADWIRE_KERNELS_DEVICE_REDUCE_MIXED_HPP
#define GRADWIRE_KERNELS_DEVICE_REDUCE_MIXED_HPP

#include "kernels/device/reduce.hpp"
#include "kernels/device/selected.hpp"

namespace gradwire::kernels {

/// A tile's sum in shared memory.
template <class Value, bool kSelected>
struct MixedShared {
  SelectShared<Value> tile;
  bool good[kMaxReduceInputs];
  WarpSums sums[kSelected || sizeof(Value) == 8 ? 1 : simt::kWarps];
};

/// Adds the x that body(strip, x) gives to each strip of the sum; with `first` it stores x instead.
template <class Value, class Body>
GRADWIRE_DEVICE void add_strips(SelectShared<Value>& tile, const TilePlace& place, bool first, const Body& body) {
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    Value x[kHeld];
    Value sum[kHeld];
    body(strip, x);
    if (first) {
      store_strip(tile, strip, x);
      continue;
    }
    load_strip(tile, strip, sum);
    accumulate(x, sum);
    store_strip(tile, strip, sum);
  }
}

/// Adds the values that topk selected; those of rank 0 are stored among zeros. Called by the whole block; ends with a
/// barrier.
template <class Value>
GRADWIRE_DEVICE void add_selected(const ReduceJob& job, SelectShared<Value>& tile, const TilePlace& place,
                                  const IndexCode& code, const std::uint8_t* payload, int rank, bool good) {
  const auto fill = [&](Value value) {
    add_strips(tile, place, true, [&](std::uint32_t /*strip*/, Value(&x)[kHeld]) { set_all(value, x); });
    simt::sync();
  };
  if (rank == 0) {
    fill(0);
  }
  bool bad = !good;
  if (good) {
    const std::uint8_t* coded = payload + code.bytes();
    bad = !for_indices(payload, place.count, code, [&](std::uint32_t j, std::uint32_t at) {
      const Value x = selected_value<Value>(job.call.codec, coded, j);
      tile.x[at] = rank == 0 ? x : tile.x[at] + x;
    });
  }
  if (simt::sync_or(bad)) {  // overwrites the elements that were stored already
    if (good && simt::thread() == 0) {
      report_bad(job.call, rank);
      report_nonfinite(job.call);
    }
    fill(not_a_number<Value>());
  }
}

/// Called by the whole block; ends with a barrier.
template <class Value>
GRADWIRE_DEVICE void add_frame(const ReduceJob& job, SelectShared<Value>& tile, const std::uint8_t* frame, bool good,
                               const TilePlace& place, std::uint32_t index, int rank) {
  with_codec<Value>(job.call.codec, [&]<class C>(Type<C>) {
    const auto context = C::context(place.tile);
    const std::uint8_t* payload = frame + tile_offset<typename C::Core>(0, index);
    add_strips(tile, place, rank == 0, [&](std::uint32_t strip, Value(&x)[kHeld]) {
      C::expand(context, C::fetch(strip, place.count, payload), x);
      if (!good) {
        set_all(not_a_number<Value>(), x);
      }
    });
  });
  simt::sync();
}

/// Encodes a strip of the sum as a strip of `out`, whose codec has no topk.
template <class Value>
GRADWIRE_DEVICE void encode_sum(const ReduceJob& job, MixedShared<Value, false>& shared, const TilePlace& place,
                                std::uint32_t index, std::uint32_t strip, Value (&sum)[kHeld]) {
  with_codec<Value>(job.second, [&]<class C>(Type<C>) {
    std::uint8_t* payload = job.out + tile_offset<typename C::Core>(0, index);
    const auto context = C::context(place.tile);
    bool bad = false;
    if constexpr (std::is_same_v<typename C::Shared, WarpSums>) {
      bad = encode_strip<C>(context, strip, place, sum, job.owner_residual, payload, shared.sums[simt::warp()]);
    } else {
      NoShared none;
      bad = encode_strip<C>(context, strip, place, sum, job.owner_residual, payload, none);
    }
    if (strip + 1 == strips(place.count)) {
      pad_tile(payload, C::Core::used_bytes(place.count));
    }
    if (bad && simt::lane() == 0) {
      mark_nonfinite(job.call, job.out);
    }
  });
}

/// Encodes the tile as a tile of `out`, whose codec is behind topk. Called by the whole block.
template <class Value>
GRADWIRE_DEVICE void select_sum(const ReduceJob& job, SelectShared<Value>& tile, TilePlace place, std::uint32_t index) {
  place.tile.k = job.second.k;
  std::uint8_t* payload =
      job.out + kHeaderBytes + std::uint64_t{index} * selected_tile_bytes(job.second, kTileElements);
  const bool bad = encode_selected_tile(tile, place, job.owner_residual, payload, [&](const IndexCode& code) {
    bool nonfinite = false;
    with_selected<Value>(job.second, [&]<class Selected>(Type<Selected>) {
      nonfinite = put_selected<Selected>(tile, code, payload, job.owner_residual != nullptr);
    });
    return nonfinite;
  });
  if (bad && simt::thread() == 0) {
    mark_nonfinite(job.call, job.out);
  }
}

/// Writes the tile's sum as the job asks: as a tile of the frame `out`, or to the result. Called by the whole block.
template <bool kSelected, class Value, class Job, class Shared>
GRADWIRE_DEVICE void put_sum(const Job& job, Shared& shared, const TilePlace& place, std::uint32_t index) {
  const Value inverse = exact_inverse(divisor_of<Value>(job));
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    const std::uint64_t first = place.first + strip * kStrip;
    const std::uint32_t left = remaining_of(strip, place.count);
    Value sum[kHeld];
    load_strip(shared.tile, strip, sum);
    clear_behind(left, sum);
    divide_sum(job, inverse, sum);
    if (job.out == nullptr) {
      store_result(job, first, left, sum);
    } else if (kSelected || job.second.k != 0) {
      if (job.owner_residual != nullptr) {
        add_residual(job.owner_residual, first, left, sum);
      }
      store_strip(shared.tile, strip, sum);
    } else if constexpr (!kSelected) {
      encode_sum(job, shared, place, index, strip, sum);
    }
  }
  simt::sync();
  if (job.out != nullptr && (kSelected || job.second.k != 0)) {
    select_sum(job, shared.tile, place, index);
  }
}

/// The number of blocks that fit on a processor.
template <class Value, bool kSelected, class Job>
inline constexpr int kMixedBlocks = kSelected ? (sizeof(Value) == 8 ? 4
                                                 : kInPieces<Job>   ? 6
                                                                    : 8)
                                              : 2;

/// kSelected: all frames, `out` too, are behind topk; otherwise any may be. A kernel with all codecs takes twice the
/// registers.
template <class Value, bool kSelected, class Job>
GRADWIRE_KERNEL_OF((kMixedBlocks<Value, kSelected, Job>))
reduce_mixed(GRADWIRE_PARAMETER(Job) job, GRADWIRE_PARAMETER(InputList) inputs) {
  GRADWIRE_SHARED MixedShared<Value, kSelected> shared;
  const std::uint32_t step = step_of(job.call);
  static_cast<void>(check_inputs(job, inputs, step, simt::block() == 0, shared.good));
  const std::uint32_t tiles = tiles_of(job.count);
  const bool selected = kSelected || job.call.codec.k != 0;
  const std::uint32_t tile_bytes = selected ? selected_tile_bytes(job.call.codec, kTileElements) : 0;
  const auto payload = [&](int i, std::uint32_t index) {
    return inputs.at(i) + kHeaderBytes + std::uint64_t{index} * tile_bytes;
  };
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const TilePlace place = tile_place(job.call, job.call.codec.k, step, job.first_tile, job.count, index);
    const IndexCode code =
        selected ? index_code(place.count, selected_count(job.call.codec.k, place.count)) : IndexCode{};
    GRADWIRE_ROLLED
    for (int i = 0; i <= inputs.frames; ++i) {
      if (i == inputs.own) {
        add_strips(shared.tile, place, i == 0, [&](std::uint32_t strip, Value(&x)[kHeld]) {
          load_own(job, place.first + strip * kStrip, remaining_of(strip, place.count), x);
        });
        simt::sync();
      }
      if (i == inputs.frames) {
        break;
      }
      if (selected) {
        add_selected(job, shared.tile, place, code, payload(i, index), inputs.rank_of(i), shared.good[i]);
      } else if constexpr (!kSelected) {
        add_frame(job, shared.tile, inputs.at(i), shared.good[i], place, index, inputs.rank_of(i));
      }
    }
    put_sum<kSelected, Value>(job, shared, place, index);
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_REDUCE_MIXED_HPP
