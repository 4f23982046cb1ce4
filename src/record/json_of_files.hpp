// JSON in files from outside: headers of safetensors and the index of a folder. Its size and its depth are limited, so
// that a crafted file takes little memory.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gradwire::record {

inline constexpr std::size_t kMostJsonBytes = std::size_t{16} << 20;  // its values take some 300 MiB of memory at most

/// The JSON in `text`, which has kMostJsonBytes at most. A text that is no JSON, or that nests deeper than any of these
/// files does, becomes a discarded value, which is neither an object nor a list.
[[nodiscard]] inline nlohmann::json parse_shallow(std::string_view text) {
  constexpr int kMostDepth = 4;  // the file, the list or object of tensors, a tensor, its shape
  bool too_deep = false;
  nlohmann::json parsed = nlohmann::json::parse(
      text,
      [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > kMostDepth;
        return !too_deep;
      },
      false);
  if (too_deep) {
    return nlohmann::json::value_t::discarded;
  }
  return parsed;
}

}  // namespace gradwire::record
