#include "policy/unquoted_text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace gradwire::policy {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kEnds = " \t\r,={}[]\"'#";  // these characters end a value without quotes

std::string_view line_of(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) {
    const std::size_t end = text.find('\n');
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// The byte at a column; columns count UTF-8 characters.
std::size_t byte_of(std::string_view line, int column) {
  std::size_t byte = 0;
  for (int at = 1; at < column && byte < line.size(); ++at) {
    do {
      ++byte;
    } while (byte < line.size() && (static_cast<unsigned char>(line[byte]) & 0xC0U) == 0x80U);
  }
  return byte;
}

// Whether a value must follow this beginning of a line: behind `=`, or in an array that began behind one.
bool expects_value(std::string_view before) {
  std::vector<char> open;
  char last = 0;
  char quote = 0;
  for (const char c : before) {
    if (quote != 0) {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '{' || (c == '[' && (last == '=' || !open.empty()))) {
      open.push_back(c);
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    }
    last = kBlanks.find(c) == std::string_view::npos ? c : last;
  }
  const bool in_array = !open.empty() && open.back() == '[';
  return quote == 0 && (last == '=' || (in_array && (last == '[' || last == ',')));
}

bool is_text(std::string_view value) {
  constexpr std::array<std::string_view, 4> kWords{"true", "false", "inf", "nan"};
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  return !value.empty() && std::isalnum(static_cast<unsigned char>(value.front())) != 0 &&
         (std::any_of(value.begin(), value.end(), is_letter) || value.back() == '%') &&
         std::find(kWords.begin(), kWords.end(), value) == kWords.end();
}

}  // namespace

std::string_view unquoted_text(std::string_view text, int line, int column) {
  const std::string_view whole = line_of(text, line);
  std::size_t begin = byte_of(whole, column);
  while (begin > 0 && kEnds.find(whole[begin - 1]) == std::string_view::npos) {
    --begin;
  }
  const std::string_view value = whole.substr(begin, whole.find_first_of(kEnds, begin) - begin);
  return is_text(value) && expects_value(whole.substr(0, begin)) ? value : std::string_view();
}

}  // namespace gradwire::policy
