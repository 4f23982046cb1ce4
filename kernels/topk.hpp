// topk: keeps the elements of each tile with the largest magnitude, ties to the lower index, and their indices. Payload
// of a tile: the indices (kernels/index_code.hpp); the selected values in that order as the codec behind the selector
// writes them; zeros up to 4 bytes. Magnitudes are compared as bits, so Inf and NaN are the largest. Where one is
// selected, the residual of the tile stays.
#ifndef GRADWIRE_KERNELS_TOPK_HPP
#define GRADWIRE_KERNELS_TOPK_HPP

#include "kernels/index_code.hpp"
#include "kernels/numeric.hpp"
#include "kernels/tile.hpp"
#include "kernels/working_memory.hpp"

namespace gradwire::kernels {

/// How many elements a tile of `count` keeps when a full one keeps k.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t selected_count(std::uint32_t k, std::uint32_t count) {
  const std::uint32_t share = (k * count + kTileElements / 2) / kTileElements;
  const std::uint32_t wanted = share < 1 ? 1 : share;
  return wanted < count ? wanted : count;
}

GRADWIRE_HOST_DEVICE inline std::uint32_t magnitude_bits(float x) { return abs_bits(x); }
GRADWIRE_HOST_DEVICE inline std::uint64_t magnitude_bits(double x) {
  return bits_as<std::uint64_t>(x) & 0x7FFFFFFFFFFFFFFFU;
}

/// `Indices` writes and reads the indices, as in kernels/index_code.hpp.
template <class SelectedCoder, class Indices = EliasFano>
struct TopK {
  using Value = typename SelectedCoder::Value;

  /// The elements that a tile keeps, while it is encoded or decoded.
  struct Selection {
    std::uint16_t index[kTileElements];
    Value selected_values[kTileElements];
  };

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t k, std::uint32_t count) {
    const std::uint32_t selected = selected_count(k, count);
    return Indices::bytes(count, selected) + SelectedCoder::bytes(selected);
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t k, std::uint32_t count) {
    return count == 0 ? 0 : padded(used_bytes(k, count), Indices::kAlignment);
  }

  static bool encode(const Tile& tile, const Value* values, Residual residual, std::uint32_t count, std::uint8_t* out) {
    auto& [index, selected_values] = working_memory_as<Selection>();
    const std::uint32_t selected = selected_count(tile.k, count);
    select(values, residual, count, selected, index);
    for (std::uint32_t j = 0; j < selected; ++j) {
      selected_values[j] = input(values, residual, index[j]);
    }
    const bool nonfinite = put(index, selected_values, count, selected, out);
    if (residual.none() || nonfinite) {
      residual.keep(count);
      return nonfinite;
    }
    SelectedCoder::decode(out + Indices::bytes(count, selected), selected, selected_values);
    for (std::uint32_t i = 0, j = 0; i < count; ++i) {
      Value left = input(values, residual, i);
      if (j < selected && index[j] == i) {
        left = left - selected_values[j];
        ++j;
      }
      residual.after[i] = static_cast<float>(left);
    }
    return false;
  }

  /// decode() and decode_add() return whether the indices have the expected number, ascend and lie inside the tile.
  static bool decode(const Tile& tile, const std::uint8_t* in, std::uint32_t count, Value* values) {
    const std::uint32_t selected = selected_count(tile.k, count);
    auto& [index, selected_values] = working_memory_as<Selection>();
    if (!get(in, count, selected, index, selected_values)) {
      return false;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = 0;
    }
    for (std::uint32_t j = 0; j < selected; ++j) {
      values[index[j]] = selected_values[j];
    }
    return true;
  }

  /// Touches the selected elements only.
  static bool decode_add(const Tile& tile, const std::uint8_t* in, std::uint32_t count, Value* values) {
    const std::uint32_t selected = selected_count(tile.k, count);
    auto& [index, selected_values] = working_memory_as<Selection>();
    if (!get(in, count, selected, index, selected_values)) {
      return false;
    }
    for (std::uint32_t j = 0; j < selected; ++j) {
      values[index[j]] = values[index[j]] + selected_values[j];
    }
    return true;
  }

 protected:
  /// Writes the whole payload; returns whether NaN or Inf was selected.
  static bool put(const std::uint16_t* index, const Value* selected_values, std::uint32_t count, std::uint32_t selected,
                  std::uint8_t* out) {
    const std::uint32_t index_bytes = Indices::bytes(count, selected);
    Indices::store(index, count, selected, out);
    const bool nonfinite = SelectedCoder::encode(selected_values, selected, out + index_bytes);
    fill_padding(out, index_bytes + SelectedCoder::bytes(selected), Indices::kAlignment);
    return nonfinite;
  }

 private:
  static Value input(const Value* values, Residual residual, std::uint32_t i) {
    return residual.none() ? values[i] : values[i] + static_cast<Value>(residual.before[i]);
  }

  static bool get(const std::uint8_t* in, std::uint32_t count, std::uint32_t selected, std::uint16_t* index,
                  Value* selected_values) {
    if (!Indices::load(in, count, selected, index)) {
      return false;
    }
    SelectedCoder::decode(in + Indices::bytes(count, selected), selected, selected_values);
    return true;
  }

  // Finds the bits of the `selected`-th largest magnitude, bit by bit from the top. Selected are all larger elements,
  // and the first of those equal to it.
  static void select(const Value* values, Residual residual, std::uint32_t count, std::uint32_t selected,
                     std::uint16_t* index) {
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
  static std::uint32_t count_from(Bits least, const Value* values, Residual residual, std::uint32_t count) {
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

#include "kernels/selector_simd.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

#if GRADWIRE_FIXED_LANES

template <class SelectedCoder, class Value = typename SelectedCoder::Value>
struct TopK : kernels::TopK<SelectedCoder> {};

template <class SelectedCoder>
struct TopK<SelectedCoder, float> : kernels::TopK<SelectedCoder> {
  using Core = kernels::TopK<SelectedCoder>;

  static bool encode(const Tile& tile, const float* values, Residual residual, std::uint32_t count, std::uint8_t* out) {
    return residual.none() ? encode_tile<false>(tile, values, residual, count, out)
                           : encode_tile<true>(tile, values, residual, count, out);
  }

 private:
  struct Selection {
    Selector selector;
    float selected_values[kTileElements];
  };

  template <bool kResidual>
  static bool encode_tile(const Tile& tile, const float* values, Residual residual, std::uint32_t count,
                          std::uint8_t* out) {
    const std::uint32_t selected = selected_count(tile.k, count);
    auto& memory = working_memory_as<Selection>();
    Selector& selector = memory.selector;
    float* const selected_values = memory.selected_values;
    selector.look<kResidual>(values, residual.before, count, selected);
    // If no value becomes Inf or NaN when it is coded, x may go to the residual before that.
    const bool finite = selector.absmax() < SelectedCoder::kNonfiniteFrom;
    const bool whole = count == kTileElements;
    float* to = whole && finite ? residual.after : selector.scratch();
    const std::uint16_t* index = selector.select<kResidual>(values, residual, to, count, selected);
    const float* x = kResidual || !whole ? to : values;
    for (std::uint32_t j = 0; j < selected; ++j) {
      selected_values[j] = x[index[j]];
    }
    const bool nonfinite = Core::put(index, selected_values, count, selected, out);
    if (!kResidual || nonfinite) {
      residual.keep(count);
      return nonfinite;
    }
    if (to != residual.after) {
      memcpy(residual.after, to, count * sizeof(float));
    }
    SelectedCoder::decode(out + EliasFano::bytes(count, selected), selected, selected_values);
    for (std::uint32_t j = 0; j < selected; ++j) {
      residual.after[index[j]] = residual.after[index[j]] - selected_values[j];
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
