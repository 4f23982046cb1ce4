// Common to all codec cores: the tile, its padding, and the inputs of encoding besides the values.
//
// A core is a class without state:
//   using Value = float;                                             working type: float, or double in exact over f64
//   uint32_t tile_bytes(k, count)                                    payload of one tile, padding included
//   bool encode(tile, values, residual, count, out)                  returns whether NaN or Inf was seen
//   void decode(tile, in, count, values)                             overwrites
//   void decode_add(tile, in, count, values)                         adds, rounding once
// If some bytes cannot be decoded, these two return bool: false for damage, which leaves the values as they were.
//   using Selected = ...                                                 the coder of values that a selector selected
// A coder of selected values takes a run of at most kTileElements, without padding:
//   using Value; kNonfiniteFrom, the bits of |x| from which on encode returns true; uint32_t bytes(count); bool
//   encode(values, count, out), returns as above; void decode(in, count, values)
// 1 <= count <= kTileElements, except that a tile of 0 elements has 0 bytes. encode fills all of tile_bytes(k, count).
#ifndef GRADWIRE_KERNELS_TILE_HPP
#define GRADWIRE_KERNELS_TILE_HPP

#include "kernels/residual.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kTileElements = 4096;
inline constexpr std::uint32_t kPayloadAlignment = 16;  // for a tile without a selector

/// Where a tile lies; `index` counts from the start of the bucket.
struct Tile {
  std::uint32_t bucket = 0;
  std::uint32_t step = 0;
  std::uint32_t index = 0;
  std::uint32_t k = 0;  // elements selected of a full tile, 0 without a selector
};

GRADWIRE_HOST_DEVICE constexpr std::uint32_t padded(std::uint32_t bytes, std::uint32_t alignment = kPayloadAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Zeroes the padding behind the `bytes` bytes that a tile fills.
GRADWIRE_HOST_DEVICE inline void fill_padding(std::uint8_t* out, std::uint32_t bytes,
                                              std::uint32_t alignment = kPayloadAlignment) {
  fill_zero(out + bytes, padded(bytes, alignment) - bytes);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_TILE_HPP
