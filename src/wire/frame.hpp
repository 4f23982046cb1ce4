// The frame: a header of 32 bytes, little-endian, and a payload. docs/wire-format.md is the byte-level text.
//   0 u32 magic | 4 u8 version, dtype, flags, codec | 8 u16 k | 10 u8 hop, terms | 12 u32 count | 16 u32 first_tile
//   20 u32 bucket | 24 u32 step | 28 u32 crc32c of header (that field zero) and payload, or 0 without kFlagCrc
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gradwire/version.hpp"

namespace gradwire::wire {

inline constexpr std::size_t kHeaderBytes = 32;
inline constexpr std::uint32_t kMagic = 0x31575247U;  // the bytes "GRW1"
inline constexpr std::uint8_t kFlagCrc = 1U << 0;
inline constexpr std::uint8_t kFlagNonfinite = 1U << 1;  // NaN or Inf among the encoded elements
inline constexpr std::uint8_t kTermMean = 1U << 0;       // the result is divided
inline constexpr std::uint8_t kTermFeedback = 1U << 1;   // with a feedback buffer
inline constexpr std::uint8_t kTermWeighted = 1U << 2;   // ranks have weights

struct FrameHeader {
  std::uint8_t version = kWireVersion;
  std::uint8_t dtype = 0;  // of the tensor, a value of DType
  std::uint8_t flags = 0;
  std::uint8_t codec = 0;  // CodecSpec::values
  std::uint16_t k = 0;     // CodecSpec::k
  std::uint8_t hop = 0;    // 0: own values, 1: a result, 4: a node's sum
  std::uint8_t terms = 0;  // kTerm...: what a call without a plan must have alike on every rank; 0 in sessions
  std::uint32_t count = 0;
  std::uint32_t first_tile = 0;
  std::uint32_t bucket = 0;
  std::uint32_t step = 0;
  std::uint32_t crc = 0;
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

/// Writes the header into the first 32 bytes of `frame`; with kFlagCrc the CRC of the whole of `frame`, whatever
/// header.crc is.
void write_header(const FrameHeader& header, std::span<std::byte> frame);

/// Reads the header of `frame`. Error(corrupt): shorter than a header, another magic, unknown flags or dtype, a byte
/// that must be zero is not, a CRC that does not match `frame`. Error(mismatch): another wire version. What codec,
/// count and the rest mean, and so the length of the payload, is for the codec to check.
[[nodiscard]] FrameHeader parse_header(std::span<const std::byte> frame);

}  // namespace gradwire::wire
