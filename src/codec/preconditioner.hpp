// A diagonal s by which a bucket's values are divided before they are encoded, and multiplied after they are decoded:
// codecs then see each value in units of its effect on the parameter. An element of s counts by the nearest power of
// two, relative to the largest of its tile, so that both operations are exact, and a constant s changes no byte.
#pragma once

#include <cstdint>
#include <vector>

namespace gradwire::codec {

class Preconditioner {
 public:
  /// Appends the scale of the bucket's next elements. Not owned.
  void append(const float* diagonal, std::uint64_t count);

  /// Computes 1 / s of elements [first, first + count), which are one tile: powers of two from 1 to
  /// 2^kernels::kMostSmaller. In a tile without positive finite elements all are equal.
  void load_reciprocals(std::uint64_t first, std::uint32_t count, float* reciprocals) const;

 private:
  struct Segment {
    const float* diagonal;
    std::uint64_t first;
    std::uint64_t count;
  };
  // Calls body(diagonal, offset inside the range, count) for each tensor that the range touches.
  template <class Body>
  void for_each_piece(std::uint64_t first, std::uint32_t count, Body body) const;

  std::vector<Segment> segments_;
  std::uint64_t count_ = 0;
};

/// The scale s of one tile, computed at its first use.
class TileScale {
 public:
  /// `of` null: s is 1, and divide() and multiply() do nothing. `scratch` holds count floats.
  TileScale(const Preconditioner* of, std::uint64_t first, std::uint32_t count, float* scratch)
      : preconditioner_(of), first_(first), count_(count), reciprocals_(scratch) {}

  explicit operator bool() const noexcept { return preconditioner_ != nullptr; }
  /// values /= s.
  void divide(float* values);
  /// values *= s.
  void multiply(float* values);

 private:
  void load();

  const Preconditioner* preconditioner_;
  std::uint64_t first_;
  std::uint32_t count_;
  float* reciprocals_;
  bool loaded_ = false;
};

}  // namespace gradwire::codec
