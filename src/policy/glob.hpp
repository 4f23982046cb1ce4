// Globs over tensor names: * (any run of bytes), ? (one byte), [abc] [a-z] [!abc] (one byte of a set). All else is
// literal, and the only escape is a class: [*]. A glob is kept as a sequence of byte sets, some of them repeated.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::policy {

class Glob {
 public:
  /// Error(invalid_argument) quotes the text and says what is wrong: empty, unclosed or empty class, reversed range.
  explicit Glob(std::string_view text);

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] bool matches(std::string_view name) const;
  /// A budget for many calls of contains() together, in comparisons of a byte with a token.
  struct Effort {
    std::uint64_t left = std::uint64_t{1} << 22;
  };
  /// Whether this glob matches every name that `other` matches. The answer is exact, except that pairs whose check
  /// would take more than a few thousand states, or more than the rest of `effort`, count as not contained.
  [[nodiscard]] bool contains(const Glob& other, Effort& effort) const;
  [[nodiscard]] bool contains(const Glob& other) const {
    Effort effort;
    return contains(other, effort);
  }

 private:
  using Bytes = std::bitset<256>;
  struct Token {
    Bytes bytes;
    bool repeated = false;  // a star
  };
  /// The tokens that may come next after some name: a set of positions, the end included.
  using Positions = std::vector<bool>;

  [[nodiscard]] Bytes parse_class(std::size_t& at) const;
  [[nodiscard]] Positions start() const;
  [[nodiscard]] Positions after(const Positions& positions, unsigned char byte) const;
  void close(Positions& positions) const;
  [[nodiscard]] std::string some_name(std::string_view for_star) const;
  [[nodiscard]] bool covers_all_names_of(const Glob& other, Effort& effort) const;

  std::string text_;
  std::vector<Token> tokens_;
  std::vector<std::string> names_;  // some names that it matches, which refute most containments at once
};

}  // namespace gradwire::policy
