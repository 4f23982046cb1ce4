// What becomes of small values beside large ones in an encoding: a codec with one scale a block rounds them to 0 where
// one value of the block is large enough, and without error feedback whatever they stand for then never changes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codec/codec.hpp"

namespace gradwire::codec {

struct SmallValues {
  std::uint64_t nonzero = 0;      // finite values that were looked at, but for zeros
  std::uint64_t zeroed = 0;       // of these, those that decode to 0
  std::uint64_t blocks = 0;       // of 256 values, some of them not 0
  std::uint64_t lost_blocks = 0;  // of these, those where most values decode to 0
  // Of the smaller half of them by magnitude, tile by tile: sums of their squares, and of the squares of their errors.
  double square = 0;
  double error = 0;

  void add(const SmallValues& other) noexcept;
  /// 0 where there were none.
  [[nodiscard]] double zeroed_share() const noexcept;
  /// NMSE of the smaller half: 1 where it decodes to 0.
  [[nodiscard]] double small_nmse() const noexcept;
  /// Blocks are lost that are not just a few: at least one in eight.
  [[nodiscard]] bool lost() const noexcept;
};

/// Encodes `values` as tiles of `codec`, without a residual, and looks at what that leaves of the small ones. Tiles
/// with NaN or Inf count for nothing; nor does an exact codec over f64.
[[nodiscard]] SmallValues find_small_values(const Codec& codec, std::span<const float> values);

}  // namespace gradwire::codec
