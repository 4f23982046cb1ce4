// How addresses of the state spaces look. Global memory is memory of this process, at its own addresses. Addresses in
// shared and local memory are offsets; as generic addresses they have a tag in their upper bits.
#pragma once

#include <cstdint>

namespace gradwire::ptx {

inline constexpr std::uint64_t kWindowMask = 0xFFFF'0000'0000'0000ULL;
inline constexpr std::uint64_t kSharedWindow = 0x5A01'0000'0000'0000ULL;
inline constexpr std::uint64_t kLocalWindow = 0x5A02'0000'0000'0000ULL;
inline constexpr std::uint64_t kParameterWindow = 0x5A03'0000'0000'0000ULL;

/// Marks the slot of a constant until slots are given.
inline constexpr std::uint32_t kConstant = 0x8000'0000U;

}  // namespace gradwire::ptx
