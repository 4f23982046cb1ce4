// The version of the library, and the names of what this build can do.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradwire {

inline constexpr int kVersionMajor = 0;
inline constexpr int kVersionMinor = 2;
inline constexpr int kVersionPatch = 0;
inline constexpr std::string_view kVersion = "0.2.0";

/// Version of the frame layout, the `version` byte of each frame (docs/wire-format.md).
inline constexpr std::uint8_t kWireVersion = 1;

}  // namespace gradwire
