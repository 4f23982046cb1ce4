// topk: of each tile the elements of the largest magnitude, ties to the lower index, and where they were.
// Payload of a tile: the indices, 12 bits each and ascending, two in 3 bytes (little-endian; an odd last one in 2
// bytes, its upper 4 bits 0); the selected values in that order as the codec behind the selector writes them; zeros up
// to 16 bytes. Magnitudes are compared as bits, so Inf and NaN are the largest. Where one is selected, the residual of
// the tile stays.
#ifndef GRADWIRE_KERNELS_TOPK_HPP
#define GRADWIRE_KERNELS_TOPK_HPP

#include "kernels/numeric.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

/// Elements that a tile of `count` keeps when a full one keeps k.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t selected_count(std::uint32_t k, std::uint32_t count) {
  const std::uint32_t share = (k * count + kTileElements / 2) / kTileElements;
  const std::uint32_t wanted = share < 1 ? 1 : share;
  return wanted < count ? wanted : count;
}

/// Bytes of `selected` indices.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t index_bytes(std::uint32_t selected) {
  return selected + (selected + 1) / 2;
}

/// The j-th index is the upper 12 bits of two bytes for odd j, else the lower; `load` shows all 16 of an odd last one.
GRADWIRE_HOST_DEVICE inline std::uint32_t load_index(const std::uint8_t* in, std::uint32_t j) {
  const std::uint32_t first = j / 2 * 3 + j % 2;
  const std::uint8_t* at = in + first;
  const std::uint32_t pair = at[0] | static_cast<std::uint32_t>(at[1]) << 8;
  return j % 2 == 0 ? pair & 0xFFFU : pair >> 4;
}

template <class Index>
GRADWIRE_HOST_DEVICE void store_indices(const Index* index, std::uint32_t selected, std::uint8_t* out) {
  for (std::uint32_t j = 0; j + 1 < selected; j += 2, out += 3) {
    const std::uint32_t pair = index[j] | static_cast<std::uint32_t>(index[j + 1]) << 12;
    out[0] = static_cast<std::uint8_t>(pair);
    out[1] = static_cast<std::uint8_t>(pair >> 8);
    out[2] = static_cast<std::uint8_t>(pair >> 16);
  }
  if (selected % 2 != 0) {
    out[0] = static_cast<std::uint8_t>(index[selected - 1]);
    out[1] = static_cast<std::uint8_t>(index[selected - 1] >> 8);
  }
}

GRADWIRE_HOST_DEVICE inline std::uint32_t magnitude_bits(float x) { return abs_bits(x); }
GRADWIRE_HOST_DEVICE inline std::uint64_t magnitude_bits(double x) {
  return bits_as<std::uint64_t>(x) & 0x7FFFFFFFFFFFFFFFU;
}

template <class SelectedCoder>
struct TopK {
  using Value = typename SelectedCoder::Value;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t k, std::uint32_t count) {
    const std::uint32_t selected = selected_count(k, count);
    return index_bytes(selected) + SelectedCoder::bytes(selected);
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t k, std::uint32_t count) {
    return count == 0 ? 0 : padded(used_bytes(k, count));
  }

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& tile, const Value* values, float* residual, std::uint32_t count,
                                          std::uint8_t* out) {
    std::uint16_t index[kTileElements];
    Value selected_values[kTileElements];
    const std::uint32_t selected = selected_count(tile.k, count);
    select(values, residual, count, selected, index);
    for (std::uint32_t j = 0; j < selected; ++j) {
      selected_values[j] = input(values, residual, index[j]);
    }
    const bool nonfinite = put(index, selected_values, selected, out, used_bytes(tile.k, count));
    if (residual == nullptr || nonfinite) {
      return nonfinite;
    }
    SelectedCoder::decode(out + index_bytes(selected), selected, selected_values);
    for (std::uint32_t i = 0, j = 0; i < count; ++i) {
      Value left = input(values, residual, i);
      if (j < selected && index[j] == i) {
        left = left - selected_values[j];
        ++j;
      }
      residual[i] = static_cast<float>(left);
    }
    return false;
  }

  GRADWIRE_HOST_DEVICE static void decode(const Tile& tile, const std::uint8_t* in, std::uint32_t count,
                                          Value* values) {
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = 0;
    }
    Value selected_values[kTileElements];
    const std::uint32_t selected = get(tile.k, in, count, selected_values);
    for (std::uint32_t j = 0; j < selected; ++j) {
      values[load_index(in, j)] = selected_values[j];
    }
  }

  /// Touches the selected elements only.
  GRADWIRE_HOST_DEVICE static void decode_add(const Tile& tile, const std::uint8_t* in, std::uint32_t count,
                                              Value* values) {
    Value selected_values[kTileElements];
    const std::uint32_t selected = get(tile.k, in, count, selected_values);
    for (std::uint32_t j = 0; j < selected; ++j) {
      Value& value = values[load_index(in, j)];
      value = value + selected_values[j];
    }
  }

  /// Whether the indices ascend and lie inside the tile.
  GRADWIRE_HOST_DEVICE static bool valid(const Tile& tile, const std::uint8_t* in, std::uint32_t count) {
    const std::uint32_t selected = selected_count(tile.k, count);
    std::uint32_t next = 0;  // the smallest that may follow
    for (std::uint32_t j = 0; j < selected; ++j) {
      const std::uint32_t index = load_index(in, j);
      if (index < next || index >= count) {
        return false;
      }
      next = index + 1;
    }
    return selected % 2 == 0 || in[index_bytes(selected) - 1] < 16;
  }

 protected:
  /// The whole payload; returns whether NaN or Inf was selected.
  GRADWIRE_HOST_DEVICE static bool put(const std::uint16_t* index, const Value* selected_values, std::uint32_t selected,
                                       std::uint8_t* out, std::uint32_t used) {
    store_indices(index, selected, out);
    const bool nonfinite = SelectedCoder::encode(selected_values, selected, out + index_bytes(selected));
    fill_padding(out, used);
    return nonfinite;
  }

 private:
  GRADWIRE_HOST_DEVICE static Value input(const Value* values, const float* residual, std::uint32_t i) {
    return residual == nullptr ? values[i] : values[i] + static_cast<Value>(residual[i]);
  }

  GRADWIRE_HOST_DEVICE static std::uint32_t get(std::uint32_t k, const std::uint8_t* in, std::uint32_t count,
                                                Value* selected_values) {
    const std::uint32_t selected = selected_count(k, count);
    SelectedCoder::decode(in + index_bytes(selected), selected, selected_values);
    return selected;
  }

  // The bits of the `selected`-th largest magnitude, bit by bit from the top; all above it are selected, and the first
  // of those equal to it.
  GRADWIRE_HOST_DEVICE static void select(const Value* values, const float* residual, std::uint32_t count,
                                          std::uint32_t selected, std::uint16_t* index) {
    using Bits = decltype(magnitude_bits(Value{}));
    Bits threshold = 0;
    for (Bits bit = Bits{1} << (sizeof(Bits) * 8 - 2); bit != 0; bit /= 2) {
      if (count_from(threshold | bit, values, residual, count) >= selected) {
        threshold |= bit;
      }
    }
    std::uint32_t ties = selected - count_from(threshold + 1, values, residual, count);
    for (std::uint32_t i = 0, j = 0; j < selected; ++i) {
      const Bits bits = magnitude_bits(input(values, residual, i));
      const bool tie = bits == threshold && ties > 0;
      if (bits > threshold || tie) {
        index[j] = static_cast<std::uint16_t>(i);
        ++j;
        ties -= tie ? 1U : 0U;
      }
    }
  }

  template <class Bits>
  GRADWIRE_HOST_DEVICE static std::uint32_t count_from(Bits least, const Value* values, const float* residual,
                                                       std::uint32_t count) {
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      found += magnitude_bits(input(values, residual, i)) >= least ? 1U : 0U;
    }
    return found;
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_TOPK_HPP

// SIMD for f32; f64 keeps the scalar core.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_TOPK_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_TOPK_SIMD_HPP
#undef GRADWIRE_KERNELS_TOPK_SIMD_HPP
#else
#define GRADWIRE_KERNELS_TOPK_SIMD_HPP
#endif

#include "kernels/run.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

#if GRADWIRE_FIXED_LANES

/// Finds what a tile keeps in two passes: the largest of each of many groups give a threshold that at least the
/// selected elements reach, and few others; these are collected, and the exact threshold is looked for among them.
class Selector {
 public:
  /// Looks at the maxima of the tile's x = value + residual. A short tile is made a full one, with zeros behind.
  template <bool kResidual>
  HWY_NOINLINE void look(const float* values, const float* residual, std::uint32_t count, std::uint32_t selected) {
    const F32 d;
    const I32 di;
    if (count != kTileElements) {
      for (std::uint32_t i = 0; i < kTileElements; ++i) {
        x_[i] = i >= count ? 0.0F : (kResidual ? values[i] + residual[i] : values[i]);
      }
    }
    const bool add = kResidual && count == kTileElements;
    const float* from = count == kTileElements ? values : x_;
    maxima_ = groups(selected);
    for (std::size_t first = 0; first < kTileElements; first += maxima_) {
      for (std::size_t j = 0; j < maxima_; j += kLanes) {
        VF32 v = hn::LoadU(d, from + first + j);
        if (add) {
          v = v + hn::LoadU(d, residual + first + j);
        }
        const VI32 bits = hn::BitCast(di, abs_bits(v));
        hn::Store(first == 0 ? bits : hn::Max(bits, hn::Load(di, bits_ + j)), di, bits_ + j);
      }
    }
    VI32 least = hn::Load(di, bits_);
    VI32 most = least;
    for (std::size_t j = kLanes; j < maxima_; j += kLanes) {
      least = hn::Min(least, hn::Load(di, bits_ + j));
      most = hn::Max(most, hn::Load(di, bits_ + j));
    }
    least_ = hn::GetLane(hn::MinOfLanes(di, least));
    most_ = hn::GetLane(hn::MaxOfLanes(di, most));
  }

  /// The bits of the largest |x|.
  [[nodiscard]] std::uint32_t absmax() const { return static_cast<std::uint32_t>(most_); }
  /// Where x may go if it may not go to the residual.
  [[nodiscard]] float* scratch() { return x_; }

  /// After look(): the indices of what is selected, ascending. Where there is a residual, x goes to `to`, which may be
  /// the residual itself; else it is `values`. A short tile has its x in scratch().
  template <bool kResidual>
  HWY_NOINLINE const std::uint16_t* select(const float* values, const float* residual, float* to, std::uint32_t count,
                                           std::uint32_t selected) {
    const std::int32_t reached = reach(selected);
    const std::int32_t least = reached > 1 ? reached : 1;
    const float* x = x_;
    if (count != kTileElements) {
      compare<false>(x_, nullptr, nullptr, least);
    } else {
      compare<kResidual>(values, residual, to, least);
      x = kResidual ? to : values;
    }
    if (selected == count) {
      for (std::uint32_t i = 0; i < count; ++i) {
        index_[i] = static_cast<std::uint16_t>(i);
      }
      return index_;
    }
    const std::uint32_t found = collect(x, residual);
    if (found < selected) {  // the others are zeros, the first ones
      add_zeros(x, selected - found, selected);
    } else if (found > selected) {
      reduce(found, selected, least);
    }
    return index_;
  }

 private:
  // A power of two; twice as many as are selected. The members of a group lie far apart: large elements often stand
  // together, as in a row of a tensor.
  static std::size_t groups(std::uint32_t selected) {
    std::size_t groups = kTileElements / 32;
    while (groups < kTileElements && groups < std::size_t{2} * selected) {
      groups *= 2;
    }
    return groups;
  }

  // How many of the first n of bits_, a multiple of kLanes, are at least `least`, which is above 0.
  [[nodiscard]] HWY_INLINE std::uint32_t count_from(std::int32_t least, std::size_t n) const {
    const I32 d;
    const VI32 below = hn::Set(d, least - 1);
    VI32 found0 = hn::Zero(d);
    VI32 found1 = found0;
    std::size_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      found0 = found0 - hn::VecFromMask(d, hn::Load(d, bits_ + i) > below);
      found1 = found1 - hn::VecFromMask(d, hn::Load(d, bits_ + i + kLanes) > below);
    }
    if (i < n) {
      found0 = found0 - hn::VecFromMask(d, hn::Load(d, bits_ + i) > below);
    }
    return static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(d, found0 + found1)));
  }

  // What at least `selected` of the maxima reach, with few more: their upper bits are enough.
  [[nodiscard]] std::int32_t reach(std::uint32_t selected) const {
    std::int32_t low = least_;  // at least `selected` reach it
    std::int32_t high = most_;  // none is above it
    while (high - low >= 1 << 16) {
      const std::int32_t middle = low + (high - low) / 2;
      (count_from(middle, maxima_) >= selected ? low : high) = middle;
    }
    return low;
  }

  // Which elements have bits of at least `least`: in words_. The values of the next tile, which often lies behind this
  // one, are asked for on the way.
  template <bool kResidual>
  HWY_INLINE void compare(const float* values, const float* residual, float* to, std::int32_t least) {
    constexpr std::size_t kLine = 16;  // floats in a cache line
    const F32 df;
    const I32 d;
    const VI32 below = hn::Set(d, least - 1);
    for (std::size_t i = 0; i < kTileElements; i += 64) {
      std::uint64_t word = 0;
      for (std::size_t j = 0; j < 64; j += kLanes) {
        if (j % kLine == 0) {
          prefetch_later(values + kTileElements + i + j);
        }
        const VF32 x = input<kResidual>(values, residual, i + j);
        if constexpr (kResidual) {
          hn::StoreU(x, df, to + i + j);
        }
        word |= mask_bits(hn::BitCast(d, abs_bits(x)) > below) << j;
      }
      words_[i / 64] = word;
    }
  }

  // The indices of the bits that are set in words_, ascending, and the bits of these elements; zeros behind the latter.
  // Asks for the next tile's residual.
  std::uint32_t collect(const float* x, const float* residual) {
    constexpr std::uint32_t kFew = 4;  // of a word, without asking how many there are: processors guess that badly
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < kTileElements; i += 64) {
      if (residual != nullptr) {
        for (std::uint32_t j = 0; j < 64; j += 16) {
          prefetch_later(residual + kTileElements + i + j);
        }
      }
      std::uint64_t word = words_[i / 64];
      const auto many = static_cast<std::uint32_t>(hwy::PopCount(word));
      std::uint16_t* to = index_ + found;
      for (std::uint32_t j = 0; j < kFew; ++j, word &= word - 1) {
        to[j] = first_bit(i, word | std::uint64_t{1} << 63);
      }
      for (std::uint32_t j = kFew; HWY_UNLIKELY(j < many); ++j, word &= word - 1) {
        to[j] = first_bit(i, word);
      }
      found += many;
    }
    for (std::uint32_t j = 0; j < found; ++j) {
      bits_[j] = static_cast<std::int32_t>(kernels::abs_bits(x[index_[j]]));
    }
    const I32 d;
    hn::StoreU(hn::Zero(d), d, bits_ + found);
    return found;
  }
  static HWY_INLINE std::uint16_t first_bit(std::uint32_t i, std::uint64_t word) {
    return static_cast<std::uint16_t>(i + static_cast<std::uint32_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(word)));
  }

  // From those collected to those selected.
  HWY_INLINE void reduce(std::uint32_t found, std::uint32_t selected, std::int32_t reached) {
    const std::size_t n = (found + kLanes - 1) / kLanes * kLanes;
    std::int32_t low = reached;                                   // at least `selected` reach it
    std::int32_t high = most_ == 0x7FFFFFFF ? most_ : most_ + 1;  // fewer reach it
    std::uint32_t at_low = found;                                 // that many do
    std::uint32_t at_high = 0;
    while (at_low != selected && high - low > 1) {
      const std::int32_t middle = low + (high - low) / 2;
      const std::uint32_t reach = count_from(middle, n);
      (reach >= selected ? low : high) = middle;
      (reach >= selected ? at_low : at_high) = reach;
    }
    std::uint32_t ties = at_low == selected ? kTileElements : selected - at_high;
    std::uint32_t to = 0;
    for (std::uint32_t i = 0; i < found; ++i) {
      const bool tie = bits_[i] == low && ties > 0;
      index_[to] = index_[i];
      to += bits_[i] > low || tie ? 1U : 0U;
      ties -= tie ? 1U : 0U;
    }
  }

  // All that is not zero, and the first `zeros` zeros.
  void add_zeros(const float* x, std::uint32_t zeros, std::uint32_t selected) {
    for (std::uint32_t i = 0, to = 0; to < selected; ++i) {
      const bool zero = kernels::abs_bits(x[i]) == 0;
      if (!zero || zeros > 0) {
        index_[to] = static_cast<std::uint16_t>(i);
        ++to;
        zeros -= zero ? 1U : 0U;
      }
    }
  }

  alignas(64) float x_[kTileElements];
  alignas(64) std::int32_t bits_[kTileElements + kLanes];  // of the maxima, then of what is collected
  std::uint64_t words_[kTileElements / 64];
  std::uint16_t index_[kTileElements + 4];
  std::size_t maxima_;  // how many
  std::int32_t least_;  // of the maxima
  std::int32_t most_;
};

template <class SelectedCoder, class Value = typename SelectedCoder::Value>
struct TopK : kernels::TopK<SelectedCoder> {};

template <class SelectedCoder>
struct TopK<SelectedCoder, float> : kernels::TopK<SelectedCoder> {
  using Core = kernels::TopK<SelectedCoder>;

  static bool encode(const Tile& tile, const float* values, float* residual, std::uint32_t count, std::uint8_t* out) {
    return residual == nullptr ? encode_tile<false>(tile, values, residual, count, out)
                               : encode_tile<true>(tile, values, residual, count, out);
  }

 private:
  template <bool kResidual>
  static bool encode_tile(const Tile& tile, const float* values, float* residual, std::uint32_t count,
                          std::uint8_t* out) {
    const std::uint32_t selected = selected_count(tile.k, count);
    Selector selector;
    selector.look<kResidual>(values, residual, count, selected);
    // Whether the residual may take x before the values are coded: none of them becomes Inf or NaN.
    const bool finite = selector.absmax() < SelectedCoder::kNonfiniteFrom;
    const bool whole = count == kTileElements;
    float* to = whole && finite ? residual : selector.scratch();
    const std::uint16_t* index = selector.select<kResidual>(values, residual, to, count, selected);
    const float* x = kResidual || !whole ? to : values;
    float selected_values[kTileElements];
    for (std::uint32_t j = 0; j < selected; ++j) {
      selected_values[j] = x[index[j]];
    }
    const bool nonfinite = Core::put(index, selected_values, selected, out, Core::used_bytes(tile.k, count));
    if (!kResidual || nonfinite) {
      return nonfinite;
    }
    if (to != residual) {
      memcpy(residual, to, count * sizeof(float));
    }
    SelectedCoder::decode(out + index_bytes(selected), selected, selected_values);
    for (std::uint32_t j = 0; j < selected; ++j) {
      residual[index[j]] = residual[index[j]] - selected_values[j];
    }
    return false;
  }
};

#else
using kernels::TopK;
#endif  // GRADWIRE_FIXED_LANES

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // toggle
