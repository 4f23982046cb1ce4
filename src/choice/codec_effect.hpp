// Measures what a codec does to given values: bytes, error and time, on real frames that are not sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec.hpp"
#include "codec/tensor_list.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::choice {

/// One frame with a tensor, or with a piece of one that begins at a tile.
class TrialFrame {
 public:
  /// `values` are in host memory, and must outlive the frame. Throws Error(unsupported) where the codec does not
  /// support their dtype.
  TrialFrame(const CodecSpec& spec, ConstView values, std::uint32_t first_tile = 0, std::uint32_t step = 0);
  TrialFrame(const TrialFrame&) = delete;
  TrialFrame& operator=(const TrialFrame&) = delete;

  /// Encodes the values. With a `residual`, which has an element for each value, it encodes values + residual and
  /// leaves in the residual what was dropped.
  void encode(float* residual = nullptr);
  /// Decodes the latest encoding and adds it to `sum`, which has an element for each value. With an exact codec and
  /// values other than f32 it only reads the bytes.
  void decode_and_add(float* sum);
  /// Copies the values to `out` as f32.
  void load(float* out) const;

  [[nodiscard]] bool lossy() const noexcept { return codec_.lossy(); }
  [[nodiscard]] bool packed() const noexcept { return codec_.packed(); }
  /// Returns the bytes of the latest encoding with its header.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  template <typename PerTile>
  void for_each_tile(const PerTile& per_tile) const;

  ConstView given_;
  codec::Codec codec_;
  codec::TensorList values_;
  codec::FrameInfo info_;
  std::vector<std::byte> frame_;
  std::vector<std::byte> room_;     // where a packed frame is unpacked
  std::vector<std::byte> scratch_;  // a tile
  std::uint64_t bytes_ = 0;
};

/// Sums of squares, which add up over pieces of a tensor and over tensors. NaN and Inf are left out, and what they
/// spoil in their blocks.
struct CodecEffect {
  std::uint64_t nonfinite = 0;  // values that are NaN or Inf, in all steps
  double norm = 0;              // of the values of all steps
  double error = 0;             // of what one encoding of each step, without a residual, makes of them
  double mean_norm = 0;         // of the mean of the values over the steps
  double mean_error = 0;        // of the mean of what is decoded; with feedback a step's residual goes into the next

  void add(const CodecEffect& other) noexcept;
  /// Returns the norm of the errors / that of the values; 0 where all values are 0.
  [[nodiscard]] double relative_error() const noexcept;
  [[nodiscard]] double relative_mean_error() const noexcept;
};

/// Encodes the values of one piece of a tensor in successive steps, as one rank does. `steps` holds the addresses of
/// `count` elements for each step; an address may repeat. The piece begins at tile `first_tile` of the tensor. Without
/// `feedback` no step keeps a residual.
[[nodiscard]] CodecEffect measure_effect(const CodecSpec& spec, DType dtype, std::uint32_t count,
                                         std::span<const void* const> steps, std::uint32_t first_tile = 0,
                                         bool feedback = true);

}  // namespace gradwire::choice
