// The frame: a header of 32 bytes, little-endian, and a payload. docs/reference/wire-format.md is the byte-level text.
//   0 u32 magic | 4 u8 version, dtype, flags, codec | 8 u16 k | 10 u8 hop + 16 terms, epoch | 12 u32 count
//   16 u32 first_tile | 20 u32 bucket | 24 u32 step | 28 u32 crc32c of all (that field zero), or 0 without kFlagCrc
// With kFlagLength 32 u64 bytes of the payload | 40 8 zeros. In version 1 hop and terms have bytes 10 and 11.
// Version 3 is a sealed frame, docs/reference/sealed-frames.md: the payload is encrypted, and a seal stands behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gradwire/version.hpp"

namespace gradwire::wire {

inline constexpr std::uint8_t kOldestWireVersion = 1;
inline constexpr std::uint8_t kSealedWireVersion = 3;
inline constexpr std::size_t kHeaderBytes = 32;
inline constexpr std::size_t kLengthBytes = 16;       // behind the header, with kFlagLength
inline constexpr std::uint32_t kMagic = 0x31575247U;  // the bytes "GRW1"
inline constexpr std::uint8_t kFlagCrc = 1U << 0;
inline constexpr std::uint8_t kFlagNonfinite = 1U << 1;  // NaN or Inf among the encoded elements
inline constexpr std::uint8_t kFlagLength = 1U << 2;     // the payload's length stands behind the header
inline constexpr std::uint8_t kFlagSealed = 1U << 3;     // in version 3, and there always
inline constexpr std::size_t kSealBytes = 24;            // behind the payload, with kFlagSealed
inline constexpr std::uint8_t kTermMean = 1U << 0;       // the result is divided
inline constexpr std::uint8_t kTermFeedback = 1U << 1;   // with a feedback buffer
inline constexpr std::uint8_t kTermWeighted = 1U << 2;   // ranks have weights

struct FrameHeader {
  std::uint8_t version = kWireVersion;
  std::uint8_t dtype = 0;  // the tensor's, a value of DType
  std::uint8_t flags = 0;
  std::uint8_t codec = 0;  // CodecSpec::values
  std::uint16_t k = 0;     // CodecSpec::k
  std::uint8_t hop = 0;    // 0: own values, 1: a result, 4: a node's sum
  std::uint8_t terms = 0;  // kTerm...: options of a call without a plan that ranks must have alike; 0 in sessions
  std::uint8_t epoch = 0;  // the world's, modulo 256; 0 in jobs that cannot go on without ranks, and from devices
  std::uint32_t count = 0;
  std::uint32_t first_tile = 0;
  std::uint32_t bucket = 0;
  std::uint32_t step = 0;
  std::uint32_t crc = 0;
  std::uint64_t length = 0;  // bytes of the payload, with kFlagLength; a seal is no part of it
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

/// Bytes before the payload of a frame with these flags.
[[nodiscard]] constexpr std::size_t header_bytes(std::uint8_t flags) noexcept {
  return kHeaderBytes + ((flags & kFlagLength) != 0 ? kLengthBytes : 0);
}

/// Writes the header, of version kWireVersion, into the first header_bytes(flags) bytes of `frame`; with kFlagCrc the
/// CRC of the whole of `frame`, whatever header.crc is.
void write_header(const FrameHeader& header, std::span<std::byte> frame);

/// Reads the header of `frame`, of any version from kOldestWireVersion on. Error(corrupt): shorter than a header,
/// another magic, unknown flags, terms or dtype, a byte that must be zero is not, a length that is not that of the
/// payload, a CRC that does not match `frame`. Error(mismatch): another wire version, or a sealed frame. The codec
/// checks codec, count and the other fields, and so the length of a payload that the header does not state.
[[nodiscard]] FrameHeader parse_header(std::span<const std::byte> frame);

/// Reads the header of a sealed frame, which is not authentic before the frame was opened. Error(corrupt) as above, and
/// where the frame is not sealed, has a CRC or no room for a seal; Error(mismatch): a later wire version. kFlagCrc says
/// that the frame had a CRC before it was sealed.
[[nodiscard]] FrameHeader parse_sealed_header(std::span<const std::byte> frame);

/// Makes the header of a frame of kWireVersion that of a sealed one: of version 3, with kFlagSealed and without the
/// CRC, which would tell of the plain payload.
void mark_sealed(std::span<std::byte> frame);
/// Does the reverse for a frame that was opened; `frame` is without the seal. It has a CRC again if it had one.
void mark_opened(std::span<std::byte> frame);

}  // namespace gradwire::wire
