// The value of GRADWIRE_TRACE, parsed.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace gradwire {

/// "/tmp/trace", "/tmp/trace:steps=100-120".
struct TraceTarget {
  std::string directory;
  std::uint32_t first_step = 0;
  std::uint32_t last_step = std::numeric_limits<std::uint32_t>::max();

  /// Parses the text; Error(invalid_argument) quotes it and says what is allowed. A name other than steps behind a
  /// colon, as in "/tmp/trace:step=1-2", is an error, too, since it would be a directory.
  [[nodiscard]] static TraceTarget parse(std::string_view text);
};

}  // namespace gradwire
