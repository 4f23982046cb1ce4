// What GRADWIRE_TRACE says.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace gradwire {

/// "DIRECTORY" or "DIRECTORY:steps=100-120".
struct TraceTarget {
  std::string directory;
  std::uint32_t first_step = 0;
  std::uint32_t last_step = std::numeric_limits<std::uint32_t>::max();

  /// Error(invalid_argument) for what it is not.
  [[nodiscard]] static TraceTarget parse(std::string_view text);
};

}  // namespace gradwire
