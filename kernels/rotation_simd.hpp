// SIMD of kernels/rotation.hpp. Blocks are encoded in groups, so that one block's sums overlap with the rotation of the
// next. Lanes is the grid over whole vectors:
//   VU8 codes(V16 q0, V16 q1)      in the order that pack() leaves
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_ROTATION_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_ROTATION_SIMD_HPP
#undef GRADWIRE_KERNELS_ROTATION_SIMD_HPP
#else
#define GRADWIRE_KERNELS_ROTATION_SIMD_HPP
#endif

#include <new>

#include "kernels/butterflies_simd.hpp"
#include "kernels/working_memory.hpp"

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

/// Packs two vectors of numbers that fit in 16 bits into one: `even` goes to the even lanes. Only the low halves count.
HWY_INLINE V16 paired(VI32 even, VI32 odd) {
  const B16 d;
  return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<16>(odd)), hn::BitCast(d, even));
}
/// The sum of each pair of products.
HWY_INLINE VI32 sum_pairs(V16 a, V16 b) {
#if HWY_ARCH_X86
  const I32 d;
  VI32 unused = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), unused);
#else
  const VI32 products = hn::BitCast(I32(), a * b);  // one of each pair is 0 here, the other fits
  return hn::ShiftRight<16>(hn::ShiftLeft<16>(products)) + hn::ShiftRight<16>(products);
#endif
}

/// The signs of a tile as vectors.
struct Flips : RotationSigns {
  alignas(64) float sign_bit[kRotated];
  alignas(64) std::int16_t factor[kRotated];  // 1 or -1
  alignas(64) std::int32_t pick[kRotated];    // the same, with a 0 for the other element of a pair

  HWY_INLINE explicit Flips(const Tile& tile) : RotationSigns(tile) {
    const U32 d;
    const hn::Rebind<std::int16_t, F32> d16;
    for (std::uint32_t i = 0; i < kRotated; i += kNear) {
      const VU32 bits = hn::Set(d, word[i / 32]);
      for (std::uint32_t j = 0; j < kNear; j += kLanes) {
        const VU32 top = bits << (hn::Set(d, 31 - j) - hn::Iota(d, 0));
        hn::Store(hn::BitCast(F32(), hn::And(top, hn::Set(d, 0x80000000U))), F32(), sign_bit + i + j);
        const VI32 minus = hn::ShiftRight<31>(hn::BitCast(I32(), top));
        const VI32 one = hn::Or(minus, hn::Set(I32(), 1));
        hn::Store(hn::DemoteTo(d16, one), d16, factor + i + j);
        const bool even = (i + j) / kLanes % 2 == 0;
        hn::Store(even ? hn::And(one, hn::Set(I32(), 0xFFFF)) : hn::ShiftLeft<16>(one), I32(), pick + i + j);
      }
    }
  }
};

/// Computes x = value + residual with the signs of the tile, and the largest |x|.
template <bool kResidual>
struct Take {
  const float* values;
  const float* residual;
  const float* sign_bit;
  VI32 most[2] = {hn::Zero(I32()), hn::Zero(I32())};

  HWY_INLINE VF32 at(std::size_t i) {
    const VF32 v = input<kResidual>(values, residual, i);
    VI32& largest = most[i / kLanes % 2];
    largest = hn::Max(largest, hn::BitCast(I32(), abs_bits(v)));
    return hn::Xor(v, hn::Load(F32(), sign_bit + i));
  }
  [[nodiscard]] HWY_INLINE std::uint32_t absmax() const {
    return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), hn::Max(most[0], most[1]))));
  }
};

/// Prefetches what encode reads next, a little at a time: the processor cannot have all of it under way at once.
template <bool kResidual>
class Ahead {
 public:
  HWY_INLINE Ahead(const float* values, const float* residual) : values_(values), residual_(residual) {}
  HWY_INLINE void ask() {
    for (std::size_t line = 0; line < kLines; ++line, at_ += kLine) {
      hwy::Prefetch(values_ + at_);
      if constexpr (kResidual) {
        hwy::Prefetch(residual_ + at_);
      }
    }
  }

 private:
  static constexpr std::size_t kLine = 16;  // floats in a cache line
  static constexpr std::size_t kLines = kResidual ? 4 : 6;
  const float* values_;
  const float* residual_;
  std::size_t at_ = 0;
};

/// Converts rotated levels to values.
struct Decoded {
  const std::int16_t* factor;
  VF32 scale;  // over 16

  template <class Put>
  HWY_INLINE void decode(std::size_t i, V16 rotated, const Put& put) const {
    const hn::Half<B16> half;
    const V16 v = rotated * hn::Load(B16(), factor + i);
    put(i, hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LowerHalf(half, v))) * scale);
    put(i + kLanes, hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::UpperHalf(half, v))) * scale);
  }
};
/// Computes residual = x - decoded from rotated levels in pairs. The factors have 15 and 8 significant bits, so
/// products are exact, and this rounds once with FMA or without.
struct Left {
  const std::int32_t* pick;
  VF32 scale;  // over 16
  const float* values;
  Residual residual;

  HWY_INLINE void put(std::size_t first, V16 rotated) const {
    const F32 d;
    for (std::size_t i = first; i < first + kLanes16; i += kLanes) {
      const VI32 one = sum_pairs(rotated, hn::BitCast(B16(), hn::Load(I32(), pick + i)));
      hn::StoreU(hn::NegMulAdd(hn::ConvertTo(d, one), scale, input<true>(values, residual.before, i)), d,
                 residual.after + i);
    }
  }
};
template <bool kAdd>
struct Out : Decoded {
  float* values;
  HWY_INLINE void put(std::size_t first, V16 rotated) const {
    decode(first, rotated, [this](std::size_t i, VF32 v) HWY_ATTR {
      hn::StoreU(kAdd ? hn::LoadU(F32(), values + i) + v : v, F32(), values + i);
    });
  }
};

template <class Grid, class Lanes>
struct RotatedSimd : RotatedCore<Grid> {
  using Core = RotatedCore<Grid>;
  using Core::kBlock;
  using Core::kCodeBytes;

  static bool encode(const Tile& tile, const float* values, Residual residual, std::uint32_t count, std::uint8_t* out) {
    const bool nonfinite = residual.none() ? encode_blocks<false>(tile, values, residual, count, out)
                                           : encode_blocks<true>(tile, values, residual, count, out);
    fill_padding(out, Core::used_bytes(count));
    return nonfinite;
  }
  static void decode(const Tile& tile, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<false>(tile, in, count, values);
  }
  static void decode_add(const Tile& tile, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<true>(tile, in, count, values);
  }

 private:
  static constexpr std::uint32_t kGroup = 4;
  // Below this magnitude a scale may become 0: the scalar core handles such blocks, and those that may overflow.
  static constexpr std::uint32_t kSmall = (127U - 100U) << 23;
  static constexpr std::size_t kBytes = 4 * kLanes;            // bytes of a vector
  static constexpr std::size_t kVectors = kRotated / kBytes;   // vectors of a block's codes, a byte each
  static constexpr std::size_t kPacked = kCodeBytes / kBytes;  // vectors of a block's codes as they are sent

  static HWY_NOINLINE bool encode_scalar(const RotationSigns& signs, const float* values, Residual residual,
                                         std::uint32_t block, std::uint32_t count, std::uint8_t* out) {
    return Core::encode_block(signs, values, residual, block, count, out);
  }

  struct LevelTable {
    alignas(16) std::int8_t of_code[16] = {};
    constexpr LevelTable() {
      for (std::uint32_t code = 0; code < 2 * Grid::kCells; ++code) {
        of_code[code] = static_cast<std::int8_t>(Core::level(code));
      }
    }
  };
  static HWY_INLINE V8 level_table() {
    alignas(16) static constexpr LevelTable kTable;
    return hn::LoadDup128(B8(), kTable.of_code);
  }
  static HWY_INLINE V8 look_up(V8 table, VU8 codes) { return hn::TableLookupBytes(table, hn::BitCast(B8(), codes)); }

  // The levels of a block, two vectors of elements in pairs, and the sums that fit its scale.
  struct Quantized {
    alignas(64) std::int16_t levels[kRotated];
    std::int32_t along;
    std::int32_t across;
  };

  // The signs of a tile, and its blocks that are encoded together.
  struct Work {
    alignas(alignof(Flips)) unsigned char flips[sizeof(Flips)];
    alignas(64) float y[kGroup * kRotated];
    Quantized quantized[kGroup];
  };

  // Rounds like round_to_int, in the low half of each lane.
  static HWY_INLINE VI32 rounded(const float* y, VF32 inverse) {
    return hn::BitCast(I32(), hn::Load(F32(), y) * inverse + hn::Set(F32(), 12582912.0F));
  }
  static HWY_INLINE V16 fixed_point(const float* y, VF32 inverse) {
    return paired(rounded(y, inverse), rounded(y + kLanes, inverse));
  }
  /// Puts the result of pack() over four vectors in pairs into order.
  static HWY_INLINE VU8 unpaired_order(VU8 bytes) {
    alignas(16) static constexpr std::uint8_t kOrder[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    return unpacked_order(hn::TableLookupBytes(bytes, hn::LoadDup128(BU8(), kOrder)));
  }

  static HWY_INLINE void quantize(const float* y, float inverse_spread, std::uint8_t* out, Quantized& to) {
    const B16 d16;
    const I32 d32;
    const VF32 inverse = hn::Set(F32(), inverse_spread);
    const V8 table = level_table();
    const V8 zero = hn::Zero(B8());
    VI32 along[2] = {hn::Zero(d32), hn::Zero(d32)};
    VI32 across[2] = {hn::Zero(d32), hn::Zero(d32)};
    V16 sent[kPacked];
#pragma GCC unroll 16
    for (std::size_t k = 0; k < kVectors; ++k) {
      const V16 q0 = fixed_point(y + k * kBytes, inverse);
      const V16 q1 = fixed_point(y + k * kBytes + 2 * kLanes, inverse);
      const VU8 codes = Lanes::codes(q0, q1);
      const V8 levels = look_up(table, codes);
      const V16 level0 = hn::ShiftRight<8>(hn::BitCast(d16, hn::InterleaveLower(B8(), zero, levels)));
      const V16 level1 = hn::ShiftRight<8>(hn::BitCast(d16, hn::InterleaveUpper(B8(), zero, levels)));
      along[0] = hn::ReorderWidenMulAccumulate(d32, q0, level0, along[0], along[1]);
      along[0] = hn::ReorderWidenMulAccumulate(d32, q1, level1, along[0], along[1]);
      across[0] = hn::ReorderWidenMulAccumulate(d32, level0, level0, across[0], across[1]);
      across[0] = hn::ReorderWidenMulAccumulate(d32, level1, level1, across[0], across[1]);
      hn::Store(level0, d16, to.levels + k * kBytes);
      hn::Store(level1, d16, to.levels + k * kBytes + kLanes16);
      const V16 bits = hn::BitCast(d16, codes);
      const int shift = static_cast<int>(Grid::kBits * (k / kPacked));
      V16& field = sent[k % kPacked];
      field = k < kPacked ? bits : hn::Or(field, hn::ShiftLeftSame(bits, shift));  // inside their bytes
    }
    for (std::size_t k = 0; k < kPacked; ++k) {
      hn::StoreU(unpaired_order(hn::BitCast(BU8(), sent[k])), BU8(), out + k * kBytes);
    }
    to.along = hn::GetLane(hn::SumOfLanes(d32, along[0] + along[1]));
    to.across = hn::GetLane(hn::SumOfLanes(d32, across[0] + across[1]));
  }

  static HWY_INLINE void unpack_levels(const std::uint8_t* in, std::int8_t* levels) {
    const BU8 d;
    const V8 table = level_table();
    for (std::size_t k = 0; k < kVectors; ++k) {
      const V16 bits = hn::BitCast(B16(), hn::LoadU(d, in + k % kPacked * kBytes));
      const VU8 shifted = hn::BitCast(d, hn::ShiftRightSame(bits, static_cast<int>(Grid::kBits * (k / kPacked))));
      const VU8 codes = hn::And(shifted, hn::Set(d, 2 * Grid::kCells - 1));
      hn::Store(look_up(table, codes), B8(), levels + k * kBytes);
    }
  }

  // Encodes blocks [first, first + n) of the tile, n <= kGroup.
  template <bool kResidual>
  static HWY_INLINE bool encode_group(const Flips& flips, const float* values, Residual residual, std::uint32_t first,
                                      std::uint32_t n, std::uint32_t count, std::uint8_t* out) {
    Work& work = working_memory_as<Work>();
    float* const y = work.y;
    Quantized* const quantized = work.quantized;
    OrderedLanes squares[kGroup];
    float spread[kGroup];
    std::uint32_t absmax[kGroup];
    const std::size_t next = std::size_t{first + kGroup} * kRotated;  // may lie behind the end: it is only prefetched
    Ahead<kResidual> ahead{values + next, residual.from(next).before};
    const auto usual = [&](std::size_t b) { return absmax[b] >= kSmall && absmax[b] < kRotationLimit; };
    for (std::size_t b = 0; b < n; ++b) {
      const std::size_t at = (first + b) * kRotated;
      Take<kResidual> from{values + at, residual.from(at).before, flips.sign_bit};
      rotate_near(from, y + b * kRotated);
      ahead.ask();
      absmax[b] = from.absmax();
    }
    for (std::size_t b = 0; b < n; ++b) {
      const float down = usual(b) ? inverse_power_of_two(absmax[b]) * kRotationFactor : 0.0F;
      rotate_far(y + b * kRotated, hn::Set(F32(), down), squares[b]);
      ahead.ask();
    }
    for (std::size_t b = 0; b < n; ++b) {
      spread[b] = sqrtf(squares[b].total() * (1.0F / kBlock));
    }
    bool nonfinite = false;
    for (std::size_t b = 0; b < n; ++b) {
      const auto block = static_cast<std::uint32_t>(first + b);
      if (HWY_LIKELY(usual(b))) {
        quantize(y + b * kRotated, kFixedPoint / spread[b], out + Core::codes_at(block, count), quantized[b]);
        const float scale = Core::fitted_scale(quantized[b].along, quantized[b].across, spread[b]);
        kernels::store(out, block, scale_nearest(scale, absmax[b]));
      } else {
        nonfinite = encode_scalar(flips, values, residual, block, count, out) || nonfinite;
      }
      ahead.ask();
    }
    for (std::size_t b = 0; kResidual && b < n; ++b) {
      ahead.ask();
      if (HWY_LIKELY(usual(b))) {
        const std::size_t block = first + b;
        const auto scale_at = static_cast<std::uint32_t>(block);
        const float scale = kernels::from_bf16(kernels::load<std::uint16_t>(out, scale_at)) * kRotationFactor;
        rotate_levels(quantized[b].levels, Left{flips.pick, hn::Set(F32(), scale), values + block * kRotated,
                                                residual.from(block * kRotated)});
      }
    }
    return nonfinite;
  }

  template <bool kResidual>
  static HWY_INLINE bool encode_blocks(const Tile& tile, const float* values, Residual residual, std::uint32_t count,
                                       std::uint8_t* out) {
    const Flips& flips = *new (working_memory_as<Work>().flips) Flips(tile);
    const std::uint32_t whole = count / kBlock;
    bool nonfinite = false;
    for (std::uint32_t first = 0; first < whole; first += kGroup) {
      const std::uint32_t n = whole - first < kGroup ? whole - first : kGroup;
      nonfinite = encode_group<kResidual>(flips, values, residual, first, n, count, out) || nonfinite;
    }
    if (whole * kBlock < count) {
      nonfinite = encode_scalar(flips, values, residual, whole, count, out) || nonfinite;
    }
    return nonfinite;
  }

  template <bool kAdd>
  static HWY_INLINE void decode_blocks(const Tile& tile, const std::uint8_t* in, std::uint32_t count, float* values) {
    const Flips& flips = *new (working_memory_as<Work>().flips) Flips(tile);
    const std::uint32_t whole = count / kBlock;
    for (std::uint32_t block = 0; block < whole; ++block) {
      alignas(64) std::int8_t levels[kRotated];
      float* to = values + static_cast<std::size_t>(block) * kRotated;
      for (std::uint32_t i = 0; kAdd && i < kRotated; i += 16) {
        prefetch_page_ahead(to + i);
      }
      unpack_levels(in + Core::codes_at(block, count), levels);
      const float scale = kernels::from_bf16(kernels::load<std::uint16_t>(in, block)) * kRotationFactor;
      rotate_levels(levels, Out<kAdd>{{flips.factor, hn::Set(F32(), scale)}, to});
    }
    if (whole * kBlock < count) {
      Core::template decode_block<kAdd>(flips, in, whole, count, values);
    }
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
