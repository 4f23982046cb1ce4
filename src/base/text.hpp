// Small pieces of text that plans, reports and messages print.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::text {

/// In double quotes; control bytes, quotes and backslashes escaped, so that it stays on one line.
[[nodiscard]] std::string quote(std::string_view text);

/// Columns as wide as their widest cell, two spaces apart; the first row is the head. `right` holds 'r' for each column
/// that is right-aligned, else 'l'.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view alignment);

/// For a terminal: what others wrote, such as names of files and hosts, with a '?' for each control character and for
/// what is no UTF-8. An escape sequence of theirs would else be obeyed.
[[nodiscard]] std::string printable(std::string_view text);
/// Likewise, but lines stay lines.
[[nodiscard]] std::string printable_lines(std::string_view text);
/// Likewise, with a '?' for each byte beyond ASCII: as many columns as bytes.
[[nodiscard]] std::string printable_ascii(std::string_view text);

/// The first bytes, up to `most`, without a part of a character at the end.
[[nodiscard]] std::string beginning(std::string_view text, std::size_t most);

/// "0, 2, 4 and 7 more": which of the numbers below `end` are not there, and how many. At most four are named.
struct Missing {
  std::size_t count = 0;
  std::string names;
};
[[nodiscard]] Missing missing(const std::set<int>& there, int end);

}  // namespace gradwire::text
