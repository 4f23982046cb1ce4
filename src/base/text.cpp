#include "base/text.hpp"

#include <algorithm>

namespace gradwire::text {

std::string quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      if (c == '"' || c == '\\') {
        result += '\\';
      }
      result += c;
    }
  }
  return result + '"';
}

std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view alignment) {
  std::vector<std::size_t> widths(alignment.size());
  for (const auto& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - row[column].size(), ' ');
      line += (column == 0 ? "" : "  ") + (alignment[column] == 'r' ? padding + row[column] : row[column] + padding);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace gradwire::text
