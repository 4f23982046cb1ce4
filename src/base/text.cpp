#include "base/text.hpp"

#include <algorithm>
#include <cstdint>
#include <system_error>

namespace gradwire::text {
namespace {

/// Number of bytes of the UTF-8 character at the beginning of `text`; 0: there is none.
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xc2 ? 0
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                           : first < 0xf5 ? 4
                                          : 0;
  if (size > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool none = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return overlong || none ? 0 : size;
}

bool is_control(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  return character.size() == 1 ? byte(0) < 0x20 || byte(0) == 0x7f : byte(0) == 0xc2 && byte(1) < 0xa0;
}

std::string cleaned(std::string_view text, bool lines, bool ascii) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = ascii ? 1 : character(text.substr(at));
    const std::string_view one = text.substr(at, std::max<std::size_t>(size, 1));
    const bool keeps = one == "\n" ? lines : size > 0 && !is_control(one) && (!ascii || (one[0] & 0x80) == 0);
    result += keeps ? one : "?";
    at += one.size();
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return cleaned(text, false, false); }
std::string printable_lines(std::string_view text) { return cleaned(text, true, false); }
std::string printable_ascii(std::string_view text) { return cleaned(text, false, true); }

std::string beginning(std::string_view text, std::size_t most) {
  std::size_t size = std::min(text.size(), most);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) {
    --size;
  }
  return std::string(text.substr(0, size));
}

std::string short_hash(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  auto folded = static_cast<std::uint32_t>(hash ^ (hash >> 32U));
  std::string digits(8, '0');
  for (char& digit : digits) {
    digit = kHex[folded >> 28U];
    folded <<= 4U;
  }
  return digits;
}

std::string reason_of(int error_number) { return std::generic_category().message(error_number); }

Missing missing(const std::set<int>& there, int end) {
  constexpr std::size_t kNamed = 4;
  Missing result;
  for (int number = 0; number < end; ++number) {
    if (!there.contains(number) && ++result.count <= kNamed) {
      result.names += (result.count == 1 ? "" : ", ") + std::to_string(number);
    }
  }
  if (result.count > kNamed) {
    result.names += " and " + std::to_string(result.count - kNamed) + " more";
  }
  return result;
}

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

std::string shell_word(std::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
  });
  if (plain) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return word + "'";
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
