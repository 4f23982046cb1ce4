// The version of the library, and the names of what this build can do.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradwire {

inline constexpr int kVersionMajor = 0;
inline constexpr int kVersionMinor = 2;
inline constexpr int kVersionPatch = 0;
inline constexpr std::string_view kVersion = "0.2.0";

/// Version of the frames that this build writes: their `version` byte (docs/reference/wire-format.md). It reads
/// versions 1 and up.
inline constexpr std::uint8_t kWireVersion = 2;

}  // namespace gradwire
