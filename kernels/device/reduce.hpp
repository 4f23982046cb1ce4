// What the owner of a shard does: decodes the frames of all ranks and adds them in rank order, its own part uncoded
// among them, divides, adds its residual and encodes the sum, in one pass; or stores it.
// Bytes for each element: a code of each rank, the own value (with its residual twice), the new code and twice the
// owner's residual. reduce_frames serves frames of one codec without topk, with sums in registers; reduce_mixed all
// else, with sums in shared memory.
#ifndef GRADWIRE_KERNELS_DEVICE_REDUCE_HPP
#define GRADWIRE_KERNELS_DEVICE_REDUCE_HPP

#include "kernels/device/selected.hpp"

namespace gradwire::kernels {

inline constexpr int kFewInputs = 64;  // arguments of a launch are copied: most calls have few

template <int kMost>
struct InputList {
  const std::uint8_t* frame[kMost];  // null: the own part
  int own = -1;                      // which one that is; -1: none
};

/// Whether all inputs have the header they should have; `good`, where it is not null: which. By the whole block; ends
/// with a barrier.
template <int kMost>
GRADWIRE_DEVICE bool check_inputs(const ReduceJob& job, const InputList<kMost>& inputs, std::uint32_t step,
                                  bool* good) {
  bool bad = false;
  for (int rank = static_cast<int>(simt::thread()); rank < job.ranks; rank += static_cast<int>(simt::kThreads)) {
    if (inputs.frame[rank] == nullptr) {
      continue;
    }
    const FramePlace place{const_cast<std::uint8_t*>(inputs.frame[rank]), job.count, job.first_tile, 0, rank};
    const HeaderCheck header = check_header(job.call.codec, place, job.call.bucket, step);
    if (good != nullptr) {
      good[rank] = header.good;
    }
    bad = bad || !header.good;
    if (simt::block() == 0 && !header.good) {
      report_bad(job.call, rank);
    }
    if (simt::block() == 0 && job.out == nullptr && (!header.good || header.nonfinite)) {
      report_nonfinite(job.call);
    }
  }
  return !simt::sync_or(bad);
}

GRADWIRE_DEVICE const std::uint8_t* residual_bytes(const float* residual, std::uint64_t first) {
  return reinterpret_cast<const std::uint8_t*>(residual + first);
}

/// x <- factor * own + own_residual of a strip, which is zero afterwards; where it is zero, x stays (so does -0).
template <class Value>
GRADWIRE_DEVICE void load_own(const ReduceJob& job, std::uint64_t first, std::uint32_t left, Value (&x)[kHeld]) {
  load_scaled(job.own, job.own_dtype, job.factor, first, left, x);
  if (job.own_residual != nullptr) {
    float residual[kHeld];
    load_as<DType::f32>(residual_bytes(job.own_residual, first), left, residual);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const bool none = residual[r] == 0;
      x[r] = none ? x[r] : x[r] + static_cast<Value>(residual[r]);
      residual[r] = none ? residual[r] : 0;
    }
    store_as<DType::f32>(reinterpret_cast<std::uint8_t*>(job.own_residual + first), left, residual);
  }
}

/// The first input is the sum, each other is added.
template <class Value>
GRADWIRE_DEVICE void accumulate(bool first, const Value (&x)[kHeld], Value (&sum)[kHeld]) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    sum[r] = first ? x[r] : sum[r] + x[r];
  }
}

template <class Value>
GRADWIRE_DEVICE void set_all(Value value, Value (&x)[kHeld]) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    x[r] = value;
  }
}

/// Zeros behind a short strip, where codecs decode to something else.
template <class Value>
GRADWIRE_DEVICE void clear_behind(std::uint32_t left, Value (&sum)[kHeld]) {
  if (left >= kStrip) {
    return;
  }
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    sum[r] = element_of(simt::lane(), r) < left ? sum[r] : Value{0};
  }
}

/// 1 / divisor where that is exact, as it is for powers of two, else 0. Products with it are the quotients then.
GRADWIRE_DEVICE float exact_inverse(float divisor) {
  const auto bits = bits_as<std::uint32_t>(divisor);
  const bool power = (bits & 0x807FFFFFU) == 0 && bits != 0 && bits < 0x7F000000U;
  return power ? bits_as<float>(0x7F000000U - bits) : 0.0F;
}
GRADWIRE_DEVICE double exact_inverse(double divisor) {
  const auto bits = bits_as<std::uint64_t>(divisor);
  const bool power = (bits & 0x800FFFFFFFFFFFFFULL) == 0 && bits != 0 && bits < 0x7FE0000000000000ULL;
  return power ? bits_as<double>(0x7FE0000000000000ULL - bits) : 0.0;
}

template <class Value>
GRADWIRE_DEVICE void divide_sum(const ReduceJob& job, Value (&sum)[kHeld]) {
  if (job.device_divisor == nullptr && job.divisor == 1) {
    return;
  }
  const auto divisor = static_cast<Value>(job.device_divisor == nullptr ? job.divisor : *job.device_divisor);
  const Value inverse = exact_inverse(divisor);
  if (inverse != 0) {  // a division takes ten times as long
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      sum[r] = sum[r] * inverse;
    }
    return;
  }
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    sum[r] = sum[r] / divisor;
  }
}

template <class Value>
GRADWIRE_DEVICE void store_result(const ReduceJob& job, std::uint64_t first, std::uint32_t left,
                                  const Value (&sum)[kHeld]) {
  const bool finite = store_values(job.result, job.result_dtype, first, left, sum);
  if (simt::ballot(!finite) != 0 && simt::lane() == 0) {
    report_nonfinite(job.call);
  }
}

/// Sum of a strip over all ranks. The own part is read first and the bytes of the next frames together, so that one
/// wait serves them all.
template <class Codec, int kMost>
GRADWIRE_DEVICE void sum_strip(const ReduceJob& job, const InputList<kMost>& inputs,
                               const typename Codec::Context& context, const TilePlace& place, std::uint64_t offset,
                               std::uint32_t strip, typename Codec::Value (&sum)[kHeld]) {
  constexpr int kAhead = Codec::kAhead;
  using Raw = typename Codec::Raw;
  using Value = typename Codec::Value;
  Value own[kHeld];
  if (inputs.own >= 0) {
    load_own(job, place.first + strip * kStrip, left_of(strip, place.count), own);
  }
  GRADWIRE_ROLLED
  for (int base = 0; base < job.ranks; base += kAhead) {
    Raw raw[kAhead];
    GRADWIRE_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const bool has_frame = base + i < job.ranks && base + i != inputs.own;
      raw[i] = has_frame ? Codec::fetch(strip, place.count, inputs.frame[base + i] + offset) : Raw{};
    }
    GRADWIRE_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (base + i >= job.ranks) {
        break;
      }
      const bool first = i == 0 && base == 0;
      if (base + i == inputs.own) {
        accumulate(first, own, sum);
      } else {
        Value x[kHeld];
        Codec::expand(context, raw[i], x);
        accumulate(first, x, sum);
      }
    }
  }
}

template <class Codec>
GRADWIRE_KERNEL_OF(sizeof(typename Codec::Value) == 8 ? 2 : 4)
reduce_frames(GRADWIRE_PARAMETER(ReduceJob) job, GRADWIRE_PARAMETER(InputList<kFewInputs>) inputs) {
  using Value = typename Codec::Value;
  GRADWIRE_SHARED typename Codec::Shared shared[simt::kWarps];
  const std::uint32_t step = step_of(job.call);
  const bool all_good = check_inputs(job, inputs, step, nullptr);
  const std::uint32_t tiles = tiles_of(job.count);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const TilePlace place = tile_place(job.call, 0, step, job.first_tile, job.count, index);
    const std::uint64_t offset = tile_offset<typename Codec::Core>(0, index);
    const auto context = Codec::context(place.tile);
    for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
      Value sum[kHeld];
      sum_strip<Codec>(job, inputs, context, place, offset, strip, sum);
      if (!all_good) {
        set_all(not_a_number<Value>(), sum);  // as any sum with a part of which nothing is known
      }
      clear_behind(left_of(strip, place.count), sum);
      divide_sum(job, sum);
      if (job.out == nullptr) {
        store_result(job, place.first + strip * kStrip, left_of(strip, place.count), sum);
        continue;
      }
      const bool bad =
          encode_strip<Codec>(context, strip, place, sum, job.owner_residual, job.out + offset, shared[simt::warp()]);
      if (bad && simt::lane() == 0) {
        mark_nonfinite(job.call, job.out);
      }
    }
  }
}

/// A tile's sum in shared memory; the warps' sums are of f32 only.
template <class Value>
struct MixedShared {
  SelectShared<Value> tile;
  WarpSums sums[sizeof(Value) == 8 ? 1 : simt::kWarps];
  bool good[kMaxReduceInputs];
};

/// Adds body(strip, x)'s x, or with `first` stores it, to each strip of the sum.
template <class Value, class Body>
GRADWIRE_DEVICE void add_strips(SelectShared<Value>& tile, const TilePlace& place, bool first, const Body& body) {
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    Value x[kHeld];
    Value sum[kHeld];
    body(strip, x);
    load_strip(tile, strip, sum);
    accumulate(first, x, sum);
    store_strip(tile, strip, sum);
  }
}

/// Adds what topk selected, or with `first` overwrites: zeros but for that. By the whole block.
template <class Value>
GRADWIRE_DEVICE void add_selected(const ReduceJob& job, SelectShared<Value>& tile, const TilePlace& place,
                                  const std::uint8_t* payload, int rank, bool good) {
  const std::uint32_t selected = selected_count(job.call.codec.k, place.count);
  const bool valid = indices_valid(payload, selected, place.count);
  if (good && !valid && simt::thread() == 0) {
    report_bad(job.call, rank);
    report_nonfinite(job.call);
  }
  const bool fills = rank == 0 || !good || !valid;
  if (fills) {
    const Value value = good && valid ? Value{0} : not_a_number<Value>();
    add_strips(tile, place, true, [&](std::uint32_t /*strip*/, Value(&x)[kHeld]) { set_all(value, x); });
    simt::sync();
  }
  if (good && valid) {
    for (std::uint32_t j = simt::thread(); j < selected; j += simt::kThreads) {
      Value& sum = tile.x[load_index(payload, j)];
      const Value x = selected_value<Value>(job.call.codec, payload + index_bytes(selected), j);
      sum = rank == 0 ? x : sum + x;
    }
  }
}

template <class Value>
GRADWIRE_DEVICE void add_input(const ReduceJob& job, MixedShared<Value>& shared, const std::uint8_t* frame,
                               const TilePlace& place, std::uint32_t index, int rank) {
  if (frame == nullptr) {
    add_strips(shared.tile, place, rank == 0, [&](std::uint32_t strip, Value(&x)[kHeld]) {
      load_own(job, place.first + strip * kStrip, left_of(strip, place.count), x);
    });
  } else if (job.call.codec.k != 0) {
    const std::uint32_t selected = selected_count(job.call.codec.k, kTileElements);
    const std::uint64_t offset = kHeaderBytes + std::uint64_t{index} * selected_tile_bytes(job.call.codec, selected);
    add_selected(job, shared.tile, place, frame + offset, rank, shared.good[rank]);
  } else {
    with_codec<Value>(job.call.codec, [&]<class C>(Type<C>) {
      const auto context = C::context(place.tile);
      const std::uint8_t* payload = frame + tile_offset<typename C::Core>(0, index);
      add_strips(shared.tile, place, rank == 0, [&](std::uint32_t strip, Value(&x)[kHeld]) {
        C::expand(context, C::fetch(strip, place.count, payload), x);
        if (!shared.good[rank]) {
          set_all(not_a_number<Value>(), x);
        }
      });
    });
  }
}

/// The tile's sum as the job wants it: a tile of the frame `out`, or the result. By the whole block.
template <class Value>
GRADWIRE_DEVICE void put_sum(const ReduceJob& job, MixedShared<Value>& shared, const TilePlace& place,
                             std::uint32_t index) {
  bool bad = false;
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    Value sum[kHeld];
    load_strip(shared.tile, strip, sum);
    clear_behind(left_of(strip, place.count), sum);
    divide_sum(job, sum);
    if (job.out == nullptr) {
      store_result(job, place.first + strip * kStrip, left_of(strip, place.count), sum);
    } else if (job.second.k != 0) {
      store_strip(shared.tile, strip, sum);
    } else {
      with_codec<Value>(job.second, [&]<class C>(Type<C>) {
        std::uint8_t* payload = job.out + tile_offset<typename C::Core>(0, index);
        const auto context = C::context(place.tile);
        if constexpr (std::is_same_v<typename C::Shared, WarpSums>) {
          bad = encode_strip<C>(context, strip, place, sum, job.owner_residual, payload, shared.sums[simt::warp()]);
        } else {
          NoShared none;
          bad = encode_strip<C>(context, strip, place, sum, job.owner_residual, payload, none);
        }
        if (bad && simt::lane() == 0) {
          mark_nonfinite(job.call, job.out);
        }
      });
    }
  }
  simt::sync();
  if (job.out != nullptr && job.second.k != 0) {
    with_selected<Value>(job.second, [&]<class Selected>(Type<Selected>) {
      TilePlace selected_place = place;
      selected_place.tile.k = job.second.k;
      std::uint8_t* payload = job.out + tile_offset<TopK<Selected>>(job.second.k, index);
      if (encode_selected_tile<Selected>(shared.tile, selected_place, job.owner_residual, payload) &&
          simt::thread() == 0) {
        mark_nonfinite(job.call, job.out);
      }
    });
  }
}

template <class Value>
GRADWIRE_KERNEL reduce_mixed(GRADWIRE_PARAMETER(ReduceJob) job,
                             GRADWIRE_PARAMETER(InputList<kMaxReduceInputs>) inputs) {
  GRADWIRE_SHARED MixedShared<Value> shared;
  const std::uint32_t step = step_of(job.call);
  static_cast<void>(check_inputs(job, inputs, step, shared.good));
  const std::uint32_t tiles = tiles_of(job.count);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    const TilePlace place = tile_place(job.call, job.call.codec.k, step, job.first_tile, job.count, index);
    GRADWIRE_ROLLED
    for (int rank = 0; rank < job.ranks; ++rank) {
      add_input(job, shared, inputs.frame[rank], place, index, rank);
      simt::sync();
    }
    put_sum(job, shared, place, index);
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_REDUCE_HPP
