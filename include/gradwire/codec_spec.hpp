// The name of a codec, parsed: the short text of a policy ("int8", "exact", "topk(1%)+int8").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire {

/// A parsed codec spec: `[ "topk(" density ")" "+" ] values`. A text converts to it, as in `{.codec = "int8"}`.
/// `values` is the wire id of a registered codec (the `codec` byte of a frame); `k` is the number of elements kept of a
/// full tile of 4096, or 0 without a selector.
struct CodecSpec {
  std::uint8_t values = 1;  // exact
  std::uint16_t k = 0;

  constexpr CodecSpec() noexcept = default;
  explicit constexpr CodecSpec(std::uint8_t value_codec) noexcept : values(value_codec) {}
  constexpr CodecSpec(std::uint8_t value_codec, std::uint16_t of_a_tile) noexcept : values(value_codec), k(of_a_tile) {}
  /// The same as parse().
  CodecSpec(std::string_view text) : CodecSpec(parse(text)) {}
  CodecSpec(const std::string& text) : CodecSpec(parse(text)) {}
  CodecSpec(const char* text) : CodecSpec(parse(text)) {}
  CodecSpec(std::nullptr_t) = delete;

  /// The codec that loses nothing and compresses nothing; the default.
  [[nodiscard]] static constexpr CodecSpec exact() noexcept { return {}; }

  /// Parses a spec; "fp32" is an alias of "exact".
  /// Throws Error(invalid_argument) that quotes the text and lists what is known.
  [[nodiscard]] static CodecSpec parse(std::string_view text);
  /// Canonical text; parse(to_string()) gives the same spec.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

}  // namespace gradwire
