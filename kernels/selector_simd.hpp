// The selection of topk over a tile of f32, in SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_SELECTOR_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_SELECTOR_SIMD_HPP
#undef GRADWIRE_KERNELS_SELECTOR_SIMD_HPP
#else
#define GRADWIRE_KERNELS_SELECTOR_SIMD_HPP
#endif

#include "kernels/run.hpp"
#include "kernels/tile.hpp"

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

/// Finds the elements that a tile keeps in two passes. The maxima of many groups give a threshold that all selected
/// elements reach, and few others. The second pass collects those, and finds the exact threshold among them.
class Selector {
 public:
  /// Computes the maxima of the tile's x = value + residual. A short tile is filled up with zeros.
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
  /// Memory for x where x may not go to the residual.
  [[nodiscard]] float* scratch() { return x_; }

  /// Writes, after look(), the ascending indices of the selected elements. With a residual, x goes to `to`, which may
  /// be the residual itself; without one x is `values`. A short tile has its x in scratch().
  template <bool kResidual>
  HWY_NOINLINE const std::uint16_t* select(const float* values, Residual residual, float* to, std::uint32_t count,
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
    if (found < selected) {  // the first zeros make up the rest
      add_zeros(x, selected - found, selected);
    } else if (found > selected) {
      reduce(found, selected, least);
    }
    return index_;
  }

 private:
  // The number of groups: a power of two, twice the number of selected elements. Members of a group lie far apart,
  // since large elements often stand together, as in a row of a tensor.
  static std::size_t groups(std::uint32_t selected) {
    std::size_t groups = kTileElements / 32;
    while (groups < kTileElements && groups < std::size_t{2} * selected) {
      groups *= 2;
    }
    return groups;
  }

  // Counts those of the first n of bits_, a multiple of kLanes, that are at least `least`, which is above 0.
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

  // A threshold that at least `selected` of the maxima reach, and few more; their upper bits suffice for it.
  [[nodiscard]] std::int32_t reach(std::uint32_t selected) const {
    std::int32_t low = least_;  // at least `selected` reach it
    std::int32_t high = most_;  // none is above it
    while (high - low >= 1 << 16) {
      const std::int32_t middle = low + (high - low) / 2;
      (count_from(middle, maxima_) >= selected ? low : high) = middle;
    }
    return low;
  }

  // Marks in words_ the elements whose bits are at least `least`. On the way it prefetches the values of the next tile,
  // which often lies behind this one.
  template <bool kResidual>
  HWY_INLINE void compare(const float* values, Residual residual, float* to, std::int32_t least) {
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
        const VF32 x = input<kResidual>(values, residual.before, i + j);
        if constexpr (kResidual) {
          hn::StoreU(x, df, to + i + j);
        }
        word |= mask_bits(hn::BitCast(d, abs_bits(x)) > below) << j;
      }
      words_[i / 64] = word;
    }
  }

  // Collects the ascending indices of the elements marked in words_, and their bits with zeros behind them. Prefetches
  // the next tile's residual.
  std::uint32_t collect(const float* x, Residual residual) {
    constexpr std::uint32_t kFew = 4;  // always taken of a word, since processors predict the real number badly
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < kTileElements; i += 64) {
      if (!residual.none()) {
        for (std::uint32_t j = 0; j < 64; j += 16) {
          prefetch_later(residual.before + kTileElements + i + j);
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

  // Reduces the collected elements to the selected ones.
  HWY_INLINE void reduce(std::uint32_t found, std::uint32_t selected, std::int32_t reached) {
    const std::size_t n = (found + kLanes - 1) / kLanes * kLanes;
    std::int32_t low = reached;                                   // at least `selected` reach it
    std::int32_t high = most_ == 0x7FFFFFFF ? most_ : most_ + 1;  // fewer reach it
    std::uint32_t at_low = found;                                 // how many reach `low`
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

  // Selects all elements that are not zero, and the first `zeros` zeros.
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
  std::size_t maxima_;  // number of maxima
  std::int32_t least_;  // the smallest of the maxima
  std::int32_t most_;
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
