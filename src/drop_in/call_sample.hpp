// What a call's result is worth beside an exact one: the difference of two buffers, and a sample of a call's input,
// kept before the call so that the same elements can be summed exactly after it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "codec/small_values.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::drop_in {

/// Sums of squares, which add up over ranks and pieces.
struct Difference {
  double difference = 0;
  double norm = 0;  // of the exact values

  void add(const Difference& other) noexcept {
    difference += other.difference;
    norm += other.norm;
  }
  /// Norm of the difference over norm of the exact values, at most kMostError: what is wrong beside a sum of zeros is
  /// that. None where the exact values are not finite.
  [[nodiscard]] std::optional<double> relative() const noexcept;
};
inline constexpr double kMostError = 1e9;

/// Of `count` elements of one type.
[[nodiscard]] Difference difference_of(const void* result, const void* exact, std::uint64_t count, DType dtype);

/// Some blocks of a call's input, spread over all of it.
class Sample {
 public:
  /// `most`: elements to keep, about. `turn`: which sample this is, so that later ones look elsewhere.
  Sample(ConstView input, std::uint64_t most, std::uint64_t turn);

  /// The kept elements, end to end.
  [[nodiscard]] ConstView kept() const noexcept { return {bytes_.data(), count_, dtype_}; }
  /// `exact`: the reduced kept elements. `result`: what this rank holds of the call's result, elements from `first` on
  /// of all that was reduced.
  [[nodiscard]] Difference compare(const void* exact, ConstView result, std::uint64_t first) const;
  /// What `codec` leaves of the kept elements' small values.
  [[nodiscard]] codec::SmallValues small_values(const codec::Codec& codec) const;

  /// The unit: whole blocks of every codec but topk.
  static constexpr std::uint64_t kBlock = 256;

 private:
  struct Piece {
    std::uint64_t first;  // in the input
    std::uint64_t count;
  };
  DType dtype_;
  std::vector<Piece> pieces_;
  std::uint64_t count_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace gradwire::drop_in
