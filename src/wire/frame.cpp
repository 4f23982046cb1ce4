#include "wire/frame.hpp"

#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::wire {
namespace {

constexpr std::size_t kCrcOffset = 28;
constexpr std::uint8_t kKnownFlags = kFlagCrc | kFlagNonfinite;
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

// As if the CRC field were zero.
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
  if (frame.size() < kHeaderBytes) {
    throw Error(ErrorCode::internal, "frame: no room for a header in " + std::to_string(frame.size()) + " bytes");
  }
  put(frame, 0, kMagic);
  put(frame, 4, header.version);
  put(frame, 5, header.dtype);
  put(frame, 6, header.flags);
  put(frame, 7, header.codec);
  put(frame, 8, header.k);
  put(frame, 10, header.hop);
  put(frame, 11, header.terms);
  put(frame, 12, header.count);
  put(frame, 16, header.first_tile);
  put(frame, 20, header.bucket);
  put(frame, 24, header.step);
  put(frame, kCrcOffset, (header.flags & kFlagCrc) != 0 ? frame_crc(frame) : 0U);
}

FrameHeader parse_header(std::span<const std::byte> frame) {
  if (frame.size() < kHeaderBytes) {
    corrupt("has " + std::to_string(frame.size()) + " bytes, a header alone has 32");
  }
  if (get<std::uint32_t>(frame, 0) != kMagic) {
    corrupt("begins with " + hex(get<std::uint32_t>(frame, 0)) + " instead of the magic number " + hex(kMagic));
  }
  FrameHeader header;
  header.version = get<std::uint8_t>(frame, 4);
  if (header.version != kWireVersion) {
    throw Error(ErrorCode::mismatch, "frame: has wire version " + std::to_string(header.version) +
                                         ", this build reads " + std::to_string(kWireVersion) +
                                         "; run the same gradwire on every rank");
  }
  header.dtype = get<std::uint8_t>(frame, 5);
  header.flags = get<std::uint8_t>(frame, 6);
  header.codec = get<std::uint8_t>(frame, 7);
  header.k = get<std::uint16_t>(frame, 8);
  header.hop = get<std::uint8_t>(frame, 10);
  header.terms = get<std::uint8_t>(frame, 11);
  header.count = get<std::uint32_t>(frame, 12);
  header.first_tile = get<std::uint32_t>(frame, 16);
  header.bucket = get<std::uint32_t>(frame, 20);
  header.step = get<std::uint32_t>(frame, 24);
  header.crc = get<std::uint32_t>(frame, kCrcOffset);
  if ((header.flags & ~kKnownFlags) != 0) {
    corrupt("has unknown flags " + hex(header.flags));
  }
  // First, so that a damaged header is not taken for one that another rank meant.
  const std::uint32_t crc = (header.flags & kFlagCrc) != 0 ? frame_crc(frame) : 0U;
  if (header.crc != crc) {
    corrupt("CRC is " + hex(header.crc) + ", its " + std::to_string(frame.size()) + " bytes give " + hex(crc));
  }
  if ((header.terms & ~kKnownTerms) != 0) {
    corrupt("has unknown terms " + hex(header.terms));
  }
  if (element_bytes(static_cast<DType>(header.dtype)) == 0) {
    corrupt("has the unknown dtype " + std::to_string(header.dtype));
  }
  return header;
}

}  // namespace gradwire::wire
