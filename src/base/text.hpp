// Small pieces of text that plans, reports and messages print.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::text {

/// The text in double quotes, with control bytes, quotes and backslashes escaped, so that it stays on one line.
[[nodiscard]] std::string quote(std::string_view text);

/// The text as one word of a shell's command line: in single quotes, unless it has only letters, digits and _@%+=:,./-.
[[nodiscard]] std::string shell_word(std::string_view text);

/// A table with columns as wide as their widest cell, two spaces apart; the first row is the head. `alignment` holds
/// 'r' for each right-aligned column, and 'l' for the others.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view alignment);

/// Makes text from elsewhere, such as names of files and hosts, safe for a terminal: '?' replaces each control
/// character and bytes that are no UTF-8. Otherwise the terminal would obey escape sequences in it.
[[nodiscard]] std::string printable(std::string_view text);
/// The same, but line ends stay.
[[nodiscard]] std::string printable_lines(std::string_view text);
/// The same, with '?' for each byte beyond ASCII, so that it has as many columns as bytes.
[[nodiscard]] std::string printable_ascii(std::string_view text);

/// Whether the character can stand in any name of a file, label or job: an ASCII letter or digit, '.', '_' or '-'.
[[nodiscard]] constexpr bool is_plain(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
}

/// The first bytes, up to `most`, without a partial character at the end.
[[nodiscard]] std::string beginning(std::string_view text, std::size_t most);

/// Eight hex digits that differ for different texts, nearly always: an FNV-1a hash, folded to 32 bits.
[[nodiscard]] std::string short_hash(std::string_view text);

/// What the operating system says of one of its error numbers (errno).
[[nodiscard]] std::string reason_of(int error_number);

/// "0, 2, 4 and 7 more": the missing numbers below `end`, of which at most four are named, and how many there are.
struct Missing {
  std::size_t count = 0;
  std::string names;
};
[[nodiscard]] Missing missing(const std::set<int>& there, int end);

}  // namespace gradwire::text
