// topk: of each tile the elements of the largest magnitude, ties to the lower index, and where they were.
// Payload of a tile: the indices, 12 bits each and ascending, two in 3 bytes (little-endian; an odd last one in 2
// bytes, its upper 4 bits 0); the kept values in that order as the codec behind the selector writes them; zeros up to
// 16 bytes. Magnitudes are compared as bits, so Inf and NaN are the largest. Where one is kept, the residual of the
// tile stays.
#ifndef GRADWIRE_KERNELS_TOPK_HPP
#define GRADWIRE_KERNELS_TOPK_HPP

#include "kernels/numeric.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

/// Elements that a tile of `count` keeps when a full one keeps k.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t kept_count(std::uint32_t k, std::uint32_t count) {
  const std::uint32_t share = (k * count + kTileElements / 2) / kTileElements;
  const std::uint32_t wanted = share < 1 ? 1 : share;
  return wanted < count ? wanted : count;
}

/// Bytes of `kept` indices.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t index_bytes(std::uint32_t kept) { return kept + (kept + 1) / 2; }

/// The j-th index is the upper 12 bits of two bytes for odd j, else the lower; `load` shows all 16 of an odd last one.
GRADWIRE_HOST_DEVICE inline std::uint32_t load_index(const std::uint8_t* in, std::uint32_t j) {
  const std::uint8_t* at = in + j / 2 * 3 + j % 2;
  const std::uint32_t pair = at[0] | static_cast<std::uint32_t>(at[1]) << 8;
  return j % 2 == 0 ? pair & 0xFFFU : pair >> 4;
}

template <class Index>
GRADWIRE_HOST_DEVICE void store_indices(const Index* index, std::uint32_t kept, std::uint8_t* out) {
  for (std::uint32_t j = 0; j + 1 < kept; j += 2, out += 3) {
    const std::uint32_t pair = index[j] | static_cast<std::uint32_t>(index[j + 1]) << 12;
    out[0] = static_cast<std::uint8_t>(pair);
    out[1] = static_cast<std::uint8_t>(pair >> 8);
    out[2] = static_cast<std::uint8_t>(pair >> 16);
  }
  if (kept % 2 != 0) {
    out[0] = static_cast<std::uint8_t>(index[kept - 1]);
    out[1] = static_cast<std::uint8_t>(index[kept - 1] >> 8);
  }
}

GRADWIRE_HOST_DEVICE inline std::uint32_t magnitude_bits(float x) { return abs_bits(x); }
GRADWIRE_HOST_DEVICE inline std::uint64_t magnitude_bits(double x) {
  return bits_as<std::uint64_t>(x) & 0x7FFFFFFFFFFFFFFFU;
}

template <class KeptCoder>
struct TopK {
  using Value = typename KeptCoder::Value;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t k, std::uint32_t count) {
    const std::uint32_t kept = kept_count(k, count);
    return index_bytes(kept) + KeptCoder::bytes(kept);
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t k, std::uint32_t count) {
    return count == 0 ? 0 : padded(used_bytes(k, count));
  }

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& tile, const Value* values, float* residual, std::uint32_t count,
                                          std::uint8_t* out) {
    std::uint16_t index[kTileElements];
    Value kept_values[kTileElements];
    const std::uint32_t kept = kept_count(tile.k, count);
    select(values, residual, count, kept, index);
    for (std::uint32_t j = 0; j < kept; ++j) {
      kept_values[j] = input(values, residual, index[j]);
    }
    const bool nonfinite = put(index, kept_values, kept, out, used_bytes(tile.k, count));
    if (residual == nullptr || nonfinite) {
      return nonfinite;
    }
    KeptCoder::decode(out + index_bytes(kept), kept, kept_values);
    for (std::uint32_t i = 0, j = 0; i < count; ++i) {
      Value left = input(values, residual, i);
      if (j < kept && index[j] == i) {
        left = left - kept_values[j];
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
    Value kept_values[kTileElements];
    const std::uint32_t kept = get(tile.k, in, count, kept_values);
    for (std::uint32_t j = 0; j < kept; ++j) {
      values[load_index(in, j)] = kept_values[j];
    }
  }

  /// Touches the kept elements only.
  GRADWIRE_HOST_DEVICE static void decode_add(const Tile& tile, const std::uint8_t* in, std::uint32_t count,
                                              Value* values) {
    Value kept_values[kTileElements];
    const std::uint32_t kept = get(tile.k, in, count, kept_values);
    for (std::uint32_t j = 0; j < kept; ++j) {
      Value& value = values[load_index(in, j)];
      value = value + kept_values[j];
    }
  }

  /// Whether the indices ascend and lie inside the tile.
  GRADWIRE_HOST_DEVICE static bool valid(const Tile& tile, const std::uint8_t* in, std::uint32_t count) {
    const std::uint32_t kept = kept_count(tile.k, count);
    std::uint32_t next = 0;  // the smallest that may follow
    for (std::uint32_t j = 0; j < kept; ++j) {
      const std::uint32_t index = load_index(in, j);
      if (index < next || index >= count) {
        return false;
      }
      next = index + 1;
    }
    return kept % 2 == 0 || in[index_bytes(kept) - 1] < 16;
  }

 protected:
  /// The whole payload; returns whether NaN or Inf was kept.
  GRADWIRE_HOST_DEVICE static bool put(const std::uint16_t* index, const Value* kept_values, std::uint32_t kept,
                                       std::uint8_t* out, std::uint32_t used) {
    store_indices(index, kept, out);
    const bool nonfinite = KeptCoder::encode(kept_values, kept, out + index_bytes(kept));
    fill_padding(out, used);
    return nonfinite;
  }

 private:
  GRADWIRE_HOST_DEVICE static Value input(const Value* values, const float* residual, std::uint32_t i) {
    return residual == nullptr ? values[i] : values[i] + static_cast<Value>(residual[i]);
  }

  GRADWIRE_HOST_DEVICE static std::uint32_t get(std::uint32_t k, const std::uint8_t* in, std::uint32_t count,
                                                Value* kept_values) {
    const std::uint32_t kept = kept_count(k, count);
    KeptCoder::decode(in + index_bytes(kept), kept, kept_values);
    return kept;
  }

  // The bits of the kept-th largest magnitude, bit by bit from the top; all above it are kept, and the first of those
  // equal to it.
  GRADWIRE_HOST_DEVICE static void select(const Value* values, const float* residual, std::uint32_t count,
                                          std::uint32_t kept, std::uint16_t* index) {
    using Bits = decltype(magnitude_bits(Value{}));
    Bits threshold = 0;
    for (Bits bit = Bits{1} << (sizeof(Bits) * 8 - 2); bit != 0; bit /= 2) {
      if (count_from(threshold | bit, values, residual, count) >= kept) {
        threshold |= bit;
      }
    }
    std::uint32_t ties = kept - count_from(threshold + 1, values, residual, count);
    for (std::uint32_t i = 0, j = 0; j < kept; ++i) {
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
