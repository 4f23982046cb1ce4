// Rows on the wire: exact, bf16, or int8 with one scale for each row. Each row is encoded by itself, without padding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/codec_spec.hpp"

namespace gradwire::table {

class RowCodec {
 public:
  /// Throws Error(unsupported) for other codecs.
  RowCodec(CodecSpec codec, std::uint32_t width);

  [[nodiscard]] std::size_t row_bytes() const noexcept { return row_bytes_; }
  /// Encodes `width` elements as row_bytes() bytes. NaN or Inf makes an int8 row NaN.
  void encode(const float* row, std::byte* out) const;
  /// Decodes a row. Any bytes give some values.
  void decode(const std::byte* in, float* row) const;
  /// Whether the row that encode() encoded as `in` is finite after decoding, if it was before.
  [[nodiscard]] bool finite(const std::byte* in) const;
  [[nodiscard]] const char* name() const noexcept;

 private:
  enum class Kind : std::uint8_t { exact, bf16, int8 };
  Kind kind_ = Kind::exact;
  std::uint32_t width_;
  std::size_t row_bytes_ = 0;
};

}  // namespace gradwire::table
