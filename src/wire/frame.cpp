#include "wire/frame.hpp"

#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::wire {
namespace {

constexpr std::size_t kCrcOffset = 28;
constexpr std::uint8_t kFirstFlags = kFlagCrc | kFlagNonfinite;  // the flags of version 1
constexpr std::uint8_t kKnownFlags = kFirstFlags | kFlagLength;
constexpr std::uint8_t kKnownTerms = kTermMean | kTermFeedback | kTermWeighted;

template <class T>
void put(std::span<std::byte> frame, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    frame[offset + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <class T>
T get(std::span<const std::byte> frame, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<std::uint64_t>(frame[offset + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

// The CRC of a frame, computed as if its CRC field were zero.
std::uint32_t frame_crc(std::span<const std::byte> frame) {
  constexpr std::byte kZeros[4]{};
  std::uint32_t crc = crc32c(frame.first(kCrcOffset));
  crc = crc32c(kZeros, crc);
  return crc32c(frame.subspan(kHeaderBytes), crc);
}

std::string hex(std::uint64_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value % 16]);
    value /= 16;
  } while (value != 0);
  return "0x" + text;
}

[[noreturn]] void corrupt(const std::string& what) { throw Error(ErrorCode::corrupt, "frame: " + what); }

}  // namespace

void write_header(const FrameHeader& header, std::span<std::byte> frame) {
  if (frame.size() < header_bytes(header.flags)) {
    throw Error(ErrorCode::internal, "frame: no room for a header in " + std::to_string(frame.size()) + " bytes");
  }
  put(frame, 0, kMagic);
  put(frame, 4, kWireVersion);
  put(frame, 5, header.dtype);
  put(frame, 6, header.flags);
  put(frame, 7, header.codec);
  put(frame, 8, header.k);
  put(frame, 10, static_cast<std::uint8_t>(header.hop | header.terms << 4));
  put(frame, 11, header.epoch);
  put(frame, 12, header.count);
  put(frame, 16, header.first_tile);
  put(frame, 20, header.bucket);
  put(frame, 24, header.step);
  if ((header.flags & kFlagLength) != 0) {
    put(frame, kHeaderBytes, header.length);
    put(frame, kHeaderBytes + 8, std::uint64_t{0});
  }
  put(frame, kCrcOffset, (header.flags & kFlagCrc) != 0 ? frame_crc(frame) : 0U);
}

namespace {

// Reads the fields, without checks, of a frame that has all their bytes.
FrameHeader read_fields(std::span<const std::byte> frame) {
  FrameHeader header;
  header.version = get<std::uint8_t>(frame, 4);
  header.dtype = get<std::uint8_t>(frame, 5);
  header.flags = get<std::uint8_t>(frame, 6);
  header.codec = get<std::uint8_t>(frame, 7);
  header.k = get<std::uint16_t>(frame, 8);
  header.hop = get<std::uint8_t>(frame, 10);
  header.terms = get<std::uint8_t>(frame, 11);
  if (header.version > 1) {
    header.epoch = header.terms;
    header.terms = header.hop >> 4;
    header.hop &= 15;
  }
  header.count = get<std::uint32_t>(frame, 12);
  header.first_tile = get<std::uint32_t>(frame, 16);
  header.bucket = get<std::uint32_t>(frame, 20);
  header.step = get<std::uint32_t>(frame, 24);
  header.crc = get<std::uint32_t>(frame, kCrcOffset);
  return header;
}

// Reads the length behind the header of a frame with kFlagLength; `frame` is without a seal.
std::uint64_t read_length(std::span<const std::byte> frame) {
  if (frame.size() < kHeaderBytes + kLengthBytes) {
    corrupt("has " + std::to_string(frame.size()) + " bytes, a header with a length has 48");
  }
  const auto length = get<std::uint64_t>(frame, kHeaderBytes);
  const std::size_t payload = frame.size() - kHeaderBytes - kLengthBytes;
  if (length != payload) {
    corrupt("says that its payload has " + std::to_string(length) + " bytes, it has " + std::to_string(payload));
  }
  if (get<std::uint64_t>(frame, kHeaderBytes + 8) != 0) {
    corrupt("has other bytes than zeros behind its length");
  }
  return length;
}

// Checks that there is a header, and that it is one of a frame.
void check_beginning(std::span<const std::byte> frame) {
  if (frame.size() < kHeaderBytes) {
    corrupt("has " + std::to_string(frame.size()) + " bytes, a header alone has 32");
  }
  if (get<std::uint32_t>(frame, 0) != kMagic) {
    corrupt("begins with " + hex(get<std::uint32_t>(frame, 0)) + " instead of the magic number " + hex(kMagic));
  }
}

// Checks what frames of every version have, and reads the length of a frame that states one; `frame` is without a seal.
void check_fields(FrameHeader& header, std::span<const std::byte> frame) {
  if ((header.flags & kFlagLength) != 0) {
    header.length = read_length(frame);
  }
  if ((header.terms & ~kKnownTerms) != 0) {
    corrupt("has unknown terms " + hex(header.terms));
  }
  if (element_bytes(static_cast<DType>(header.dtype)) == 0) {
    corrupt("has the unknown dtype " + std::to_string(header.dtype));
  }
}

}  // namespace

FrameHeader parse_header(std::span<const std::byte> frame) {
  check_beginning(frame);
  FrameHeader header = read_fields(frame);
  if (header.version == kSealedWireVersion && (header.flags & kFlagSealed) != 0) {
    throw Error(ErrorCode::mismatch,
                "frame: is sealed (wire version 3), and this rank has no key; give every rank the job's key");
  }
  if (header.version < kOldestWireVersion || header.version > kWireVersion) {
    throw Error(ErrorCode::mismatch, "frame: has wire version " + std::to_string(header.version) +
                                         ", this build reads " + std::to_string(kOldestWireVersion) + " to " +
                                         std::to_string(kWireVersion) + "; run the same gradwire on every rank");
  }
  if ((header.flags & ~(header.version == 1 ? kFirstFlags : kKnownFlags)) != 0) {
    corrupt("has unknown flags " + hex(header.flags));
  }
  // The CRC is checked first, so that a damaged header is not taken for one that another rank sent on purpose.
  const std::uint32_t crc = (header.flags & kFlagCrc) != 0 ? frame_crc(frame) : 0U;
  if (header.crc != crc) {
    corrupt("CRC is " + hex(header.crc) + ", its " + std::to_string(frame.size()) + " bytes give " + hex(crc));
  }
  check_fields(header, frame);
  return header;
}

FrameHeader parse_sealed_header(std::span<const std::byte> frame) {
  check_beginning(frame);
  FrameHeader header = read_fields(frame);
  if (header.version > kSealedWireVersion) {
    throw Error(ErrorCode::mismatch, "frame: has wire version " + std::to_string(header.version) +
                                         ", this build seals version 3; run the same gradwire on every rank");
  }
  if (header.version != kSealedWireVersion || (header.flags & kFlagSealed) == 0) {
    corrupt("is not sealed, as all frames of a job with a key are");
  }
  if ((header.flags & ~(kKnownFlags | kFlagSealed)) != 0) {
    corrupt("has unknown flags " + hex(header.flags));
  }
  if (header.crc != 0) {
    corrupt("is sealed and has a CRC");
  }
  const std::size_t least = header_bytes(header.flags) + kSealBytes;
  if (frame.size() < least) {
    corrupt("has " + std::to_string(frame.size()) + " bytes, header and seal alone have " + std::to_string(least));
  }
  check_fields(header, frame.first(frame.size() - kSealBytes));
  return header;
}

void mark_sealed(std::span<std::byte> frame) {
  put(frame, 4, kSealedWireVersion);
  put(frame, 6, static_cast<std::uint8_t>(get<std::uint8_t>(frame, 6) | kFlagSealed));
  put(frame, kCrcOffset, 0U);
}

void mark_opened(std::span<std::byte> frame) {
  const auto flags = static_cast<std::uint8_t>(get<std::uint8_t>(frame, 6) & ~kFlagSealed);
  put(frame, 4, kWireVersion);
  put(frame, 6, flags);
  put(frame, kCrcOffset, (flags & kFlagCrc) != 0 ? frame_crc(frame) : 0U);
}

}  // namespace gradwire::wire
