// Small helpers to read PTX text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::ptx {

inline std::string_view trim(std::string_view text) {
  while (!text.empty() &&
         (text.front() == ' ' || text.front() == '\t' || text.front() == '\n' || text.front() == '\r')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

/// Returns how many lines end in `text`.
inline std::uint32_t lines_in(std::string_view text) {
  return static_cast<std::uint32_t>(std::count(text.begin(), text.end(), '\n'));
}

inline std::string_view without_comment(std::string_view line) { return line.substr(0, line.find("//")); }

/// Takes the first word off `text`.
inline std::string_view next_word(std::string_view& text) {
  text = trim(text);
  const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

/// Splits at `separator` outside of braces and brackets.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      if (const std::string_view part = trim(text.substr(begin, i - begin)); !part.empty()) {
        parts.push_back(part);
      }
      begin = i + 1;
    } else {
      depth += text[i] == '{' || text[i] == '[' ? 1 : text[i] == '}' || text[i] == ']' ? -1 : 0;
    }
  }
  return parts;
}

/// Returns the bytes of a type such as "u32", or 0 if it is none.
inline std::size_t type_bytes(std::string_view type) {
  if (type.size() < 2 || std::string_view("bsuf").find(type[0]) == std::string_view::npos) {
    return 0;
  }
  const std::string_view bits = type.substr(1);
  return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
}

/// A variable as it is declared, behind its state space.
struct Declared {
  std::string name;
  std::size_t align = 1;
  std::size_t element = 1;
  std::size_t bytes = 0;
  std::string_view rest;
};
Declared declared_variable(std::string_view text);

}  // namespace gradwire::ptx
