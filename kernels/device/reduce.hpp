// The work of a shard's owner: it decodes the frames of all ranks and adds them in rank order, with its own part
// uncoded among them, divides, adds its residual, and encodes the sum, in one pass, or stores it.
// Bytes for each element: a code of each rank, the own value (with its residual twice), the new code and twice the
// owner's residual. reduce_frames serves frames of one codec without topk, with sums in registers; reduce_mixed of
// kernels/device/reduce_mixed.hpp serves all others.
#ifndef GRADWIRE_KERNELS_DEVICE_REDUCE_HPP
#define GRADWIRE_KERNELS_DEVICE_REDUCE_HPP

#include "kernels/device/decode.hpp"
#include "kernels/device/encode.hpp"

namespace gradwire::kernels {

/// The frames in rank order; the own part is not among them.
struct InputList {
  const std::uint8_t* first = nullptr;
  std::uint32_t pitch = 0;
  int frames = 0;
  int own = -1;  // number of frames before the own part; -1: there is no own part
  /// A byte of a frame. Offsets have 32 bits, since addresses of several frames would not fit into registers.
  [[nodiscard]] GRADWIRE_HOST_DEVICE const std::uint8_t* at(int i, std::uint32_t offset = 0) const {
    return first + (pitch * static_cast<std::uint32_t>(i) + offset);
  }
  [[nodiscard]] GRADWIRE_HOST_DEVICE int rank_of(int i) const { return own >= 0 && i >= own ? i + 1 : i; }
};

GRADWIRE_HOST_DEVICE constexpr InputList input_list(const ReduceJob& job) {
  return {job.frames, job.pitch, job.ranks - (job.own_rank >= 0 ? 1 : 0), job.own_rank};
}

/// Returns whether all frames have the expected header; `good`, unless null, tells it for each. One block of a job
/// `reports`. The whole block calls it; it ends with a barrier.
GRADWIRE_DEVICE bool check_inputs(const ReduceJob& job, const InputList& inputs, std::uint32_t step, bool reports,
                                  bool* good) {
  bool bad = false;
  for (int i = static_cast<int>(simt::thread()); i < inputs.frames; i += static_cast<int>(simt::kThreads)) {
    const FramePlace place{const_cast<std::uint8_t*>(inputs.at(i)), job.count, job.first_tile, 0, -1};
    const HeaderCheck header = check_header(job.call.codec, place, job.call.bucket, step);
    if (good != nullptr) {
      good[i] = header.good;
    }
    bad = bad || !header.good;
    if (reports && !header.good) {
      report_bad(job.call, inputs.rank_of(i));
    }
    if (reports && job.out == nullptr && (!header.good || header.nonfinite)) {
      report_nonfinite(job.call);
    }
  }
  return !simt::sync_or(bad);
}

GRADWIRE_DEVICE const std::uint8_t* residual_bytes(const float* residual, std::uint64_t first) {
  return reinterpret_cast<const std::uint8_t*>(residual + first);
}

/// x <- factor * own + own_residual of a strip; the residual is zero afterwards. Where it was zero, x stays (-0 too).
template <class Job, class Value>
GRADWIRE_DEVICE void load_own(const Job& job, std::uint64_t first, std::uint32_t left, Value (&x)[kHeld]) {
  load_scaled<Job>(job.own, job.own_pieces, job.own_dtype, job.factor, first, left, x);
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

template <class Value>
GRADWIRE_DEVICE void accumulate(const Value (&x)[kHeld], Value (&sum)[kHeld]) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    sum[r] = sum[r] + x[r];
  }
}

template <class Value>
GRADWIRE_DEVICE void set_all(Value value, Value (&x)[kHeld]) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    x[r] = value;
  }
}

/// Writes zeros behind the end of a short strip, where codecs decode to something else.
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

/// Returns 1 / divisor where that is exact, as it is for powers of two, otherwise 0. If exact, products with it are the
/// quotients.
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
GRADWIRE_DEVICE Value divisor_of(const ReduceJob& job) {
  return static_cast<Value>(job.device_divisor == nullptr ? job.divisor : *job.device_divisor);
}

/// `inverse` is the result of exact_inverse(divisor).
template <class Value>
GRADWIRE_DEVICE void divide_sum(const ReduceJob& job, Value inverse, Value (&sum)[kHeld]) {
  if (inverse != 0) {  // a division takes ten times as long
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      sum[r] = sum[r] * inverse;
    }
    return;
  }
  const auto divisor = divisor_of<Value>(job);
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    sum[r] = sum[r] / divisor;
  }
}

template <class Job, class Value>
GRADWIRE_DEVICE void store_result(const Job& job, std::uint64_t first, std::uint32_t left, const Value (&sum)[kHeld]) {
  const bool finite = store_strip_of<Job>(job.result, job.result_pieces, job.result_dtype, first, left, sum);
  if (simt::ballot(!finite) != 0 && simt::lane() == 0) {
    report_nonfinite(job.call);
  }
}

/// A tile of a sum. Inputs has the members `at`, `frames` and `own` of InputList.
template <class Codec, class Inputs, class Job>
struct TileSum {
  const Job& job;
  const Inputs& inputs;
  typename Codec::Context context;
  TilePlace place;
  std::uint64_t offset;  // where the tile's payload begins in each frame
};

/// sum <- sum + a frame's strip.
template <class Codec, class Inputs, class Job, class Value>
GRADWIRE_DEVICE void add_frame(const TileSum<Codec, Inputs, Job>& all, const typename Codec::Raw& raw,
                               Value (&sum)[kHeld]) {
  if constexpr (requires { Codec::add(all.context, raw, sum); }) {
    Codec::add(all.context, raw, sum);
  } else {
    Value x[kHeld];
    Codec::expand(all.context, raw, x);
    accumulate(x, sum);
  }
}

/// sum <- sum + frames [first, first + kCount), which are fetched together, with the own part at its place among them.
template <int kCount, class Codec, class Inputs, class Job, class Value>
GRADWIRE_DEVICE void add_frames(const TileSum<Codec, Inputs, Job>& all, std::uint32_t strip, int first,
                                const Value (&own)[kHeld], Value (&sum)[kHeld]) {
  typename Codec::Raw raw[kCount];
  GRADWIRE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    raw[i] = Codec::fetch(strip, all.place.count,
                          frame_bytes(all.inputs.at(first + i, static_cast<std::uint32_t>(all.offset))));
  }
  GRADWIRE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (first + i == all.inputs.own) {
      accumulate(own, sum);
    }
    add_frame(all, raw[i], sum);
  }
}

/// sum <- sum + all inputs, one after the other. The own part takes registers only when its turn has come.
template <class Codec, class Inputs, class Job, class Value>
GRADWIRE_DEVICE void add_one_by_one(const TileSum<Codec, Inputs, Job>& all, std::uint32_t strip, Value (&sum)[kHeld]) {
  int i = 0;
  GRADWIRE_ROLLED
  for (bool before_own = all.inputs.own >= 0;; before_own = false) {
    const int end = before_own ? all.inputs.own : all.inputs.frames;
    GRADWIRE_ROLLED
    for (; i < end; ++i) {
      const auto raw =
          Codec::fetch(strip, all.place.count, frame_bytes(all.inputs.at(i, static_cast<std::uint32_t>(all.offset))));
      add_frame(all, raw, sum);
    }
    if (!before_own) {
      return;
    }
    Value own[kHeld];
    load_own(all.job, all.place.first + strip * kStrip, remaining_of(strip, all.place.count), own);
    accumulate(own, sum);
  }
}

/// sum <- sum + all inputs, in groups of kAhead frames and a group of the rest. No load depends on a condition, since
/// the compiler would make such a load wait for the earlier ones.
template <int kAhead, class Codec, class Inputs, class Job, class Value>
GRADWIRE_DEVICE void add_inputs(const TileSum<Codec, Inputs, Job>& all, std::uint32_t strip, Value (&sum)[kHeld]) {
  Value own[kHeld];
  if (all.inputs.own >= 0) {
    load_own(all.job, all.place.first + strip * kStrip, remaining_of(strip, all.place.count), own);
  }
  const int frames = all.inputs.frames;
  int first = 0;
  GRADWIRE_ROLLED
  for (; first + kAhead <= frames; first += kAhead) {
    add_frames<kAhead>(all, strip, first, own, sum);
  }
  if constexpr (kAhead > 3) {
    if (first + 3 == frames) {
      add_frames<3>(all, strip, first, own, sum);
    }
  }
  if constexpr (kAhead > 2) {
    if (first + 2 == frames) {
      add_frames<2>(all, strip, first, own, sum);
    }
  }
  if constexpr (kAhead > 1) {
    if (first + 1 == frames) {
      add_frames<1>(all, strip, first, own, sum);
    }
  }
  if (all.inputs.own == frames) {
    accumulate(own, sum);
  }
}

/// The whole block calls it. `nothing` is the sum of no inputs; for `inverse` see divide_sum(). A lane calls `note` for
/// each strip that is encoded with NaN or Inf.
template <int kAhead, class Codec, class Inputs, class Job, class Note>
GRADWIRE_DEVICE void reduce_tile(const TileSum<Codec, Inputs, Job>& all, typename Codec::Value nothing,
                                 typename Codec::Value inverse, typename Codec::Shared& shared, const Note& note) {
  const TilePlace& place = all.place;
  GRADWIRE_ROLLED
  for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
    typename Codec::Value sum[kHeld];
    set_all(nothing, sum);
    if constexpr (kAhead == 1) {
      add_one_by_one(all, strip, sum);
    } else {
      add_inputs<kAhead>(all, strip, sum);
    }
    clear_behind(remaining_of(strip, place.count), sum);
    divide_sum(all.job, inverse, sum);
    if (all.job.out == nullptr) {
      store_result(all.job, place.first + strip * kStrip, remaining_of(strip, place.count), sum);
      continue;
    }
    std::uint8_t* payload = frame_bytes(all.job.out) + all.offset;
    if (encode_strip<Codec>(all.context, strip, place, sum, all.job.owner_residual, payload, shared) &&
        simt::lane() == 0) {
      note();
    }
  }
  if (all.job.out != nullptr && simt::warp() == 0) {
    pad_tile(all.job.out + all.offset, Codec::Core::used_bytes(place.count));
  }
}

/// Sums tile `index` of the job; the whole block calls it. `nothing` and `inverse` are as for reduce_tile().
template <class Codec, class Job>
GRADWIRE_DEVICE void reduce_part(const Job& job, const InputList& inputs, std::uint32_t index, std::uint32_t step,
                                 typename Codec::Value nothing, typename Codec::Value inverse,
                                 typename Codec::Shared& shared) {
  using Sum = TileSum<Codec, InputList, Job>;
  const TilePlace place = tile_place(job.call, 0, step, job.first_tile, job.count, index);
  const std::uint64_t offset = tile_offset<typename Codec::Core>(0, index);
  const auto context = Codec::context(place.tile);
  const auto note = [&] { mark_nonfinite(job.call, job.out); };
  if (place.count == kTileElements) {
    reduce_tile<Codec::kAhead>(Sum{job, inputs, context, full(place), offset}, nothing, inverse, shared, note);
  } else {
    reduce_tile<1>(Sum{job, inputs, context, place, offset}, nothing, inverse, shared, note);
  }
}

template <class Codec, class Job>
GRADWIRE_KERNEL_OF(kInPieces<Job>&& Codec::kSummingBlocks > 4 ? 4 : Codec::kSummingBlocks)
reduce_frames(GRADWIRE_PARAMETER(Job) job, GRADWIRE_PARAMETER(InputList) inputs) {
  using Value = typename Codec::Value;
  GRADWIRE_SHARED typename Codec::Shared shared[simt::kWarps];
  const std::uint32_t step = step_of(job.call);
  const Value inverse = exact_inverse(divisor_of<Value>(job));
  // -0 + x is x for every x; a frame with a bad header makes all results NaN.
  const bool good = check_inputs(job, inputs, step, simt::block() == 0, nullptr);
  const Value nothing = good ? Value{-0.0F} : not_a_number<Value>();
  const std::uint32_t tiles = tiles_of(job.count);
  for (std::uint32_t index = simt::block(); index < tiles; index += simt::blocks()) {
    reduce_part<Codec>(job, inputs, index, step, nothing, inverse, shared[simt::warp()]);
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_REDUCE_HPP
