// Measures how well an encoding keeps small values beside large ones. A codec with one scale a block rounds them to 0
// where one value of the block is large enough; without error feedback their parameters then never change.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codec/codec.hpp"

namespace gradwire::codec {

struct SmallValues {
  std::uint64_t nonzero = 0;      // finite values other than 0
  std::uint64_t zeroed = 0;       // values of `nonzero` that decode to 0
  std::uint64_t blocks = 0;       // blocks of 256 values, some of them not 0
  std::uint64_t lost_blocks = 0;  // blocks of `blocks` where most values decode to 0
  // Sums over the smaller half of the nonzero values of each tile: of their squares, and of the squares of their
  // errors.
  double square = 0;
  double error = 0;

  void add(const SmallValues& other) noexcept;
  /// zeroed / nonzero; 0 where there are no nonzero values.
  [[nodiscard]] double zeroed_share() const noexcept;
  /// NMSE of the smaller half: 1 where it decodes to 0.
  [[nodiscard]] double small_nmse() const noexcept;
  /// Whether many blocks are lost: at least one in eight.
  [[nodiscard]] bool lost() const noexcept;
};

/// Encodes `values` as tiles of `codec`, without a residual, and measures the small ones. It skips tiles with NaN or
/// Inf, and returns zeros for codecs that lose nothing.
[[nodiscard]] SmallValues find_small_values(const Codec& codec, std::span<const float> values);

}  // namespace gradwire::codec
