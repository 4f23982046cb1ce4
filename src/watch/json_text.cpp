#include "watch/json_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace gradwire::watch {
namespace {

// Number of bytes of the UTF-8 character at the front; 0: there is none, for example in file names that are Latin-1.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xC2 && lead < 0xE0 ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  if (length == 0 || length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) {
      return 0;
    }
  }
  const bool is_overlong_or_surrogate = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) >= 0xA0) ||
                                        (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) >= 0x90);
  return is_overlong_or_surrogate ? 0 : length;
}

void append_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (length == 0) {
      out += "\xEF\xBF\xBD";  // the replacement character
    } else if (byte == '"' || byte == '\\') {
      (out += '\\') += text.front();
    } else if (byte < 0x20) {
      out += "\\u00";
      (out += kHex[byte >> 4U]) += kHex[byte & 15U];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace

void JsonText::separate() {
  if (!first_) {
    text_ += ',';
  }
  first_ = false;
}

JsonText& JsonText::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonText& JsonText::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonText& JsonText::key(std::string_view name) {
  separate();
  text_ += '"';
  append_escaped(text_, name);
  text_ += "\":";
  first_ = true;
  return *this;
}

JsonText& JsonText::string(std::string_view value) {
  separate();
  text_ += '"';
  append_escaped(text_, value);
  text_ += '"';
  return *this;
}

JsonText& JsonText::number(double value) {
  if (!std::isfinite(value)) {
    return null();
  }
  separate();
  std::array<char, 32> digits{};
  constexpr double kExact = 9007199254740992;  // 2^53
  const bool whole = value == std::floor(value) && std::abs(value) < kExact;
  const auto end = whole ? std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<std::int64_t>(value))
                         : std::to_chars(digits.data(), digits.data() + digits.size(), value);
  text_.append(digits.data(), end.ptr);
  return *this;
}

JsonText& JsonText::boolean(bool value) {
  separate();
  text_ += value ? "true" : "false";
  return *this;
}

JsonText& JsonText::null() {
  separate();
  text_ += "null";
  return *this;
}

}  // namespace gradwire::watch
