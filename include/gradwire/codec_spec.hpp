// What a codec is called: the short text of a policy ("int8", "exact", "topk(1%)+int8"), parsed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire {

/// A parsed codec spec: `[ "topk(" density ")" "+" ] values`.
/// `values` is the wire id of a registered codec (the `codec` byte of a frame); `k` is the number of elements kept of a
/// full tile of 4096, or 0 without a selector.
struct CodecSpec {
  std::uint8_t values = 1;  // exact
  std::uint16_t k = 0;

  /// Nothing is lost and nothing compressed; what a default one is.
  [[nodiscard]] static constexpr CodecSpec exact() noexcept { return {}; }

  /// Throws Error(invalid_argument) that quotes the text and lists what is known. "fp32" is an alias of "exact".
  [[nodiscard]] static CodecSpec parse(std::string_view text);
  /// Canonical text; parse(to_string()) gives the same spec.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

}  // namespace gradwire
