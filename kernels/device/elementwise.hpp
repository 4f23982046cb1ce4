// Kernels without a codec: single words, conversions, buckets from tensors and back.
#ifndef GRADWIRE_KERNELS_DEVICE_ELEMENTWISE_HPP
#define GRADWIRE_KERNELS_DEVICE_ELEMENTWISE_HPP

#include "kernels/array_hash.hpp"
#include "kernels/device/jobs.hpp"
#include "kernels/device/strip.hpp"

namespace gradwire::kernels {

GRADWIRE_KERNEL advance_word(GRADWIRE_PARAMETER(std::uint32_t*) step) {
  if (simt::thread() == 0) {
    *step += 1;
  }
}

GRADWIRE_KERNEL store_double(GRADWIRE_PARAMETER(double) value, GRADWIRE_PARAMETER(double*) to) {
  if (simt::thread() == 0) {
    *to = value;
  }
}

GRADWIRE_KERNEL write_words(GRADWIRE_PARAMETER(WordsJob) job) {
  for (std::uint32_t i = simt::thread(); i < job.count; i += simt::kThreads) {
    job.to[i] = job.word[i];
  }
}

/// Weights of one launch; `continues`: another launch came before, `ends`: none follows.
struct WeightList {
  static constexpr std::uint32_t kMost = 256;
  const double* weight[kMost];
  std::uint32_t count;
  bool continues;
  bool ends;
};

/// totals <- sum of weights, 1 / sum, own / sum. NaN where a weight or the sum is not valid.
GRADWIRE_KERNEL add_weights(GRADWIRE_PARAMETER(WeightList) list, GRADWIRE_PARAMETER(double) own,
                            GRADWIRE_PARAMETER(double*) totals) {
  if (simt::thread() == 0) {
    constexpr double kMost = 1.7976931348623157e308;
    const double nan = __builtin_nan("");
    double sum = list.continues ? totals[0] : 0.0;
    for (std::uint32_t i = 0; i < list.count; ++i) {
      const double weight = *list.weight[i];
      sum = weight >= 0 && weight <= kMost ? sum + weight : nan;
    }
    const bool valid = sum > 0 && sum <= kMost;
    totals[0] = valid || !list.ends ? sum : nan;
    totals[1] = valid ? 1 / sum : nan;
    totals[2] = valid ? own / sum : nan;
  }
}

/// A number that the host knows, or one that lies in device memory.
struct Scalar {
  double value;
  const double* device;
};
GRADWIRE_DEVICE double value_of(const Scalar& scalar) {
  return scalar.device == nullptr ? scalar.value : *scalar.device;
}

struct FoldJob {
  float* residual;
  Scalar factor;
  void* values;
  DType dtype;
  std::uint64_t count;
};

// How many of `count` elements the strip at `first` has.
GRADWIRE_DEVICE std::uint32_t strip_left(std::uint64_t first, std::uint64_t count) {
  const std::uint64_t left = count - first;
  return left < kStrip ? static_cast<std::uint32_t>(left) : kStrip;
}

/// Calls body(first element, elements) for the strips of this warp.
template <class Body>
GRADWIRE_DEVICE void for_each_strip(std::uint64_t count, Body body) {
  const std::uint64_t stride = std::uint64_t{simt::blocks()} * simt::kWarps * kStrip;
  for (std::uint64_t first = (std::uint64_t{simt::block()} * simt::kWarps + simt::warp()) * kStrip; first < count;
       first += stride) {
    body(first, strip_left(first, count));
  }
}

/// Bytes for each element: value and residual, both read and written.
template <class Value>
GRADWIRE_KERNEL fold_residual(GRADWIRE_PARAMETER(FoldJob) job) {
  const auto factor = static_cast<Value>(value_of(job.factor));
  for_each_strip(job.count, [&](std::uint64_t first, std::uint32_t left) {
    Value x[kHeld];
    Value residual[kHeld];
    load_values(job.values, job.dtype, first, left, x);
    load_as<DType::f32>(reinterpret_cast<const std::uint8_t*>(job.residual + first), left, residual);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const bool none = residual[r] == 0;  // a value of -0 then stays
      x[r] = none ? x[r] : x[r] + factor * residual[r];
      residual[r] = none ? residual[r] : 0;
    }
    store_values(job.values, job.dtype, first, left, x);
    store_as<DType::f32>(reinterpret_cast<std::uint8_t*>(job.residual + first), left, residual);
  });
}

struct HashJob {
  const std::uint8_t* elements;
  std::uint64_t count;
  std::uint32_t* sums;
};

/// Each warp adds its words atomically; the order does not change the sums.
GRADWIRE_KERNEL hash_elements(GRADWIRE_PARAMETER(HashJob) job) {
  std::uint32_t sums[2] = {0, 0};
  for_each_strip(job.count, [&](std::uint64_t first, std::uint32_t left) {
    std::uint32_t bits[kHeld];
    load_elements(job.elements + first * 4, left, bits);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::uint32_t i = element_of(simt::lane(), r);
      GRADWIRE_UNROLL
      for (std::uint32_t w = 0; w < 2; ++w) {
        sums[w] += i < left ? hash_word(bits[r], first + i, w) : 0U;
      }
    }
  });
  GRADWIRE_UNROLL
  for (std::uint32_t w = 0; w < 2; ++w) {
    const auto of_warp = static_cast<std::uint32_t>(simt::warp_sum(static_cast<std::int32_t>(sums[w])));
    if (simt::lane() == 0) {
      simt::atomic_add(job.sums + w, of_warp);
    }
  }
}

struct ConvertJob {
  const void* from;
  DType from_dtype;
  void* to;
  DType to_dtype;
  std::uint64_t count;
  Scalar factor;
  Scalar divisor;
};

template <class Value>
GRADWIRE_KERNEL convert_elements(GRADWIRE_PARAMETER(ConvertJob) job) {
  const auto factor = static_cast<Value>(value_of(job.factor));
  const auto divisor = static_cast<Value>(value_of(job.divisor));
  for_each_strip(job.count, [&](std::uint64_t first, std::uint32_t left) {
    Value x[kHeld];
    load_values(job.from, job.from_dtype, first, left, x);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = factor == 1 ? x[r] : x[r] * factor;
      x[r] = divisor == 1 ? x[r] : x[r] / divisor;
    }
    store_values(job.to, job.to_dtype, first, left, x);
  });
}

/// Pieces of one launch. `strips_before` has for each piece the number of strips of the pieces before it, and at the
/// end the number of all strips.
struct PieceList {
  static constexpr std::uint32_t kMost = 96;
  CopyPiece piece[kMost];
  std::uint64_t strips_before[kMost + 1];
  std::uint32_t count;
  DType tensors;
  DType run_dtype;
  void* run;
};

/// The piece that strip `strip` of the launch belongs to.
GRADWIRE_DEVICE std::uint32_t piece_at(const PieceList& list, std::uint64_t strip) {
  std::uint32_t low = 0;
  std::uint32_t high = list.count;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (list.strips_before[middle] <= strip ? low : high) = middle;
  }
  return low;
}

/// Loads elements as Value; with Value = uint16_t it loads the bits of a 16-bit type, untouched.
template <class Value>
GRADWIRE_DEVICE void load_piece(const void* from, DType dtype, std::uint64_t first, std::uint32_t left,
                                Value (&x)[kHeld]) {
  if constexpr (sizeof(Value) == 2) {
    load_elements(static_cast<const std::uint8_t*>(from) + first * 2, left, x);
  } else {
    load_values(from, dtype, first, left, x);
  }
}
template <class Value>
GRADWIRE_DEVICE void store_piece(void* to, DType dtype, std::uint64_t first, std::uint32_t left,
                                 const Value (&x)[kHeld]) {
  if constexpr (sizeof(Value) == 2) {
    store_elements(static_cast<std::uint8_t*>(to) + first * 2, left, x);
  } else {
    store_values(to, dtype, first, left, x);
  }
}

/// kGather: run <- tensors, with zeros for null tensors; otherwise tensors <- run.
template <class Value, bool kGather>
GRADWIRE_KERNEL copy_pieces(GRADWIRE_PARAMETER(PieceList) list) {
  const std::uint64_t strips = list.strips_before[list.count];
  const std::uint64_t stride = std::uint64_t{simt::blocks()} * simt::kWarps;
  for (std::uint64_t strip = std::uint64_t{simt::block()} * simt::kWarps + simt::warp(); strip < strips;
       strip += stride) {
    const std::uint32_t at = piece_at(list, strip);
    const CopyPiece& piece = list.piece[at];
    const std::uint64_t first = (strip - list.strips_before[at]) * kStrip;
    const std::uint32_t left = strip_left(first, piece.count);
    Value x[kHeld] = {};
    if (!kGather) {
      load_piece(list.run, list.run_dtype, piece.offset + first, left, x);
    } else if (piece.tensor != nullptr) {
      load_piece(piece.tensor, list.tensors, first, left, x);
    }
    if (kGather) {
      store_piece(list.run, list.run_dtype, piece.offset + first, left, x);
    } else if (piece.tensor != nullptr) {
      store_piece(piece.tensor, list.tensors, first, left, x);
    }
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_ELEMENTWISE_HPP
