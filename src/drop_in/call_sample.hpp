// Measures the error of a call's result: the difference of two buffers, and a sample of a call's input, which is kept
// before the call so that the same elements can be summed exactly after it. Pure.
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
  /// Norm of the difference / norm of the exact values, at most kMostError, which any error beside exact zeros has. No
  /// value if the exact values are not finite.
  [[nodiscard]] std::optional<double> relative() const noexcept;
};
inline constexpr double kMostError = 1e9;

/// The difference of `count` elements of one type.
[[nodiscard]] Difference difference_of(const void* result, const void* exact, std::uint64_t count, DType dtype);

/// Some blocks of a call's input, spread over all of it.
class CallSample {
 public:
  /// `most` is about the number of elements to keep. `turn` is the number of this sample, so that later ones take other
  /// elements.
  CallSample(ConstView input, std::uint64_t most, std::uint64_t turn);

  /// The kept elements, end to end.
  [[nodiscard]] ConstView kept() const noexcept { return {bytes_.data(), count_, dtype_}; }
  /// `exact` has the exact sums of the kept elements. `result` is this rank's part of the call's result, from element
  /// `first` on of all reduced ones.
  [[nodiscard]] Difference compare(const void* exact, ConstView result, std::uint64_t first) const;
  /// The effect of `codec` on the kept elements' small values.
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
