// Tests the header byte by byte, and everything that makes parse_header refuse a frame.
#include "wire/frame.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire::wire {
namespace {

using ::testing::HasSubstr;

FrameHeader sample(std::uint8_t flags) {
  FrameHeader header;
  header.dtype = 1;
  header.flags = flags;
  header.codec = 4;
  header.k = 0x0102;
  header.hop = 4;
  header.terms = kTermFeedback;
  header.epoch = 0x51;
  header.count = 0x11121314;
  header.first_tile = 0x21222324;
  header.bucket = 0x31323334;
  header.step = 0x41424344;
  return header;
}

std::vector<std::byte> frame_of(const FrameHeader& header, std::size_t payload = 48) {
  std::vector<std::byte> frame(kHeaderBytes + payload);
  for (std::size_t i = 0; i < payload; ++i) {
    frame[kHeaderBytes + i] = static_cast<std::byte>(3 * i);
  }
  write_header(header, frame);
  return frame;
}

void expect_refused(std::span<const std::byte> frame, ErrorCode code, const std::string& what) {
  try {
    (void)parse_header(frame);
    ADD_FAILURE() << "accepted; expected: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

TEST(Frame, LayoutIsPinned) {
  const auto frame = frame_of(sample(kFlagNonfinite), 0);
  constexpr std::array<int, 32> kExpected{'G',  'R',  'W',  '1',  2,    1,    2,    4,    0x02, 0x01, 0x24,
                                          0x51, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33,
                                          0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0,    0,    0,    0};
  ASSERT_EQ(frame.size(), kExpected.size());
  for (std::size_t i = 0; i < frame.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(frame[i]), kExpected[i]) << "byte " << i;
  }
}

TEST(Frame, RoundTrip) {
  for (const std::uint8_t flags :
       {std::uint8_t{0}, kFlagCrc, kFlagNonfinite, std::uint8_t{kFlagCrc | kFlagNonfinite}}) {
    const FrameHeader header = sample(flags);
    FrameHeader parsed = parse_header(frame_of(header));
    EXPECT_EQ(parsed.crc != 0, (flags & kFlagCrc) != 0);
    parsed.crc = 0;
    EXPECT_EQ(parsed, header);
  }
}

// Hop and terms are in two bytes, and the byte of the epoch is empty.
TEST(Frame, Version1IsRead) {
  auto frame = frame_of(sample(0));
  frame[4] = std::byte{1};
  frame[10] = std::byte{4};
  frame[11] = std::byte{5};
  const FrameHeader header = parse_header(frame);
  EXPECT_EQ(header.version, 1);
  EXPECT_EQ(header.hop, 4);
  EXPECT_EQ(header.terms, kTermMean | kTermWeighted);
  EXPECT_EQ(header.epoch, 0);
  frame[6] = std::byte{kFlagLength};
  expect_refused(frame, ErrorCode::corrupt, "unknown flags 0x4");
}

FrameHeader with_length(std::uint64_t length) {
  FrameHeader header = sample(kFlagCrc | kFlagLength);
  header.length = length;
  return header;
}

TEST(Frame, LengthOfThePayloadBehindTheHeader) {
  std::vector<std::byte> frame(header_bytes(kFlagLength) + 20, std::byte{9});
  ASSERT_EQ(frame.size(), 68U);
  write_header(with_length(20), frame);
  EXPECT_EQ(frame[32], std::byte{20});
  EXPECT_TRUE(std::all_of(frame.begin() + 33, frame.begin() + 48, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(frame[48], std::byte{9});
  FrameHeader parsed = parse_header(frame);
  parsed.crc = 0;
  EXPECT_EQ(parsed, with_length(20));
  for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    auto damaged = frame;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_THROW((void)parse_header(damaged), Error) << "bit " << bit;
  }
}

TEST(Frame, LengthThatIsNotThatOfThePayload) {
  const auto refused = [](std::uint64_t length, std::size_t payload, std::byte behind, const std::string& what) {
    std::vector<std::byte> frame(48 + payload);
    FrameHeader header = with_length(length);
    header.flags = kFlagLength;
    write_header(header, frame);
    frame[47] = behind;
    expect_refused(frame, ErrorCode::corrupt, what);
  };
  refused(19, 20, std::byte{0}, "says that its payload has 19 bytes, it has 20");
  refused(21, 20, std::byte{0}, "21 bytes, it has 20");
  refused(~std::uint64_t{0}, 20, std::byte{0}, "18446744073709551615 bytes");
  refused(20, 20, std::byte{1}, "zeros behind its length");
  std::vector<std::byte> small(47);
  EXPECT_THROW(write_header(with_length(0), small), Error);
  auto header_only = frame_of(sample(0), 15);
  header_only[6] = std::byte{kFlagLength};
  expect_refused(header_only, ErrorCode::corrupt, "47 bytes, a header with a length has 48");
}

TEST(Frame, WhatTheCallerLeftInTheCrcFieldDoesNotMatter) {
  std::vector<std::byte> frame = frame_of(sample(kFlagCrc));
  const auto first = frame;
  write_header(sample(kFlagCrc), frame);
  EXPECT_EQ(frame, first);
}

TEST(Frame, EveryFlippedBitIsSeenWithCrc) {
  const auto good = frame_of(sample(kFlagCrc));
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto frame = good;
    frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    try {
      (void)parse_header(frame);
      ADD_FAILURE() << "bit " << bit;
    } catch (const Error& error) {
      const bool version = bit / 8 == 4;
      EXPECT_EQ(error.code(), version ? ErrorCode::mismatch : ErrorCode::corrupt)
          << "bit " << bit << ": " << error.what();
    }
  }
}

TEST(Frame, Refusals) {
  const auto changed = [](std::size_t byte, int value) {
    auto frame = frame_of(sample(0));
    frame[byte] = static_cast<std::byte>(value);
    return frame;
  };
  expect_refused({}, ErrorCode::corrupt, "0 bytes");
  const auto whole = frame_of(sample(0));
  expect_refused(std::span(whole).first(31), ErrorCode::corrupt, "31 bytes");
  expect_refused(changed(0, 'X'), ErrorCode::corrupt, "magic");
  expect_refused(changed(4, 3), ErrorCode::mismatch, "wire version 3, this build reads 1 to 2");
  expect_refused(changed(4, 0), ErrorCode::mismatch, "wire version 0");
  expect_refused(changed(5, 0), ErrorCode::corrupt, "dtype 0");
  expect_refused(changed(5, 5), ErrorCode::corrupt, "dtype 5");
  expect_refused(changed(6, 8), ErrorCode::corrupt, "unknown flags 0x8");
  expect_refused(changed(6, 1), ErrorCode::corrupt, "CRC");
  expect_refused(changed(10, 0x80), ErrorCode::corrupt, "unknown terms 0x8");
  expect_refused(changed(28, 7), ErrorCode::corrupt, "CRC");
}

// A frame as it is sent sealed, whose payload of 48 bytes nobody has encrypted.
std::vector<std::byte> sealed_frame(std::uint8_t flags = kFlagCrc) {
  auto frame = frame_of(sample(flags));
  frame.resize(frame.size() + kSealBytes);
  mark_sealed(frame);
  return frame;
}

TEST(Frame, ASealedHeaderIsThatOfVersion2WithoutTheBytesOfTheCrc) {
  for (const std::uint8_t flags : {std::uint8_t{0}, kFlagCrc, std::uint8_t{kFlagCrc | kFlagNonfinite}}) {
    auto frame = sealed_frame(flags);
    const FrameHeader header = parse_sealed_header(frame);
    FrameHeader expected = sample(static_cast<std::uint8_t>(flags | kFlagSealed));
    expected.version = kSealedWireVersion;
    EXPECT_EQ(header, expected);
    expect_refused(frame, ErrorCode::mismatch, "is sealed (wire version 3)");
    frame.resize(frame.size() - kSealBytes);
    mark_opened(frame);
    EXPECT_EQ(frame, frame_of(sample(flags)));
  }
}

TEST(Frame, RefusalsOfSealedHeaders) {
  const auto refused = [](std::vector<std::byte> frame, ErrorCode code, const std::string& what) {
    try {
      (void)parse_sealed_header(frame);
      ADD_FAILURE() << "accepted; expected: " << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  };
  const auto changed = [](std::size_t byte, int value) {
    auto frame = sealed_frame();
    frame[byte] = static_cast<std::byte>(value);
    return frame;
  };
  const auto cut = [](std::size_t bytes) {
    auto frame = sealed_frame();
    frame.resize(bytes);
    return frame;
  };
  refused({}, ErrorCode::corrupt, "0 bytes");
  refused(cut(31), ErrorCode::corrupt, "31 bytes");
  refused(cut(55), ErrorCode::corrupt, "55 bytes, header and seal alone have 56");
  EXPECT_NO_THROW((void)parse_sealed_header(cut(56)));
  refused(changed(0, 'X'), ErrorCode::corrupt, "magic");
  refused(frame_of(sample(0)), ErrorCode::corrupt, "is not sealed");
  refused(frame_of(sample(kFlagCrc)), ErrorCode::corrupt, "is not sealed");
  refused(changed(4, 4), ErrorCode::mismatch, "wire version 4");
  refused(changed(4, 2), ErrorCode::corrupt, "is not sealed");
  refused(changed(6, 0), ErrorCode::corrupt, "is not sealed");
  refused(changed(6, kFlagSealed | 0x10), ErrorCode::corrupt, "unknown flags 0x18");
  refused(changed(28, 7), ErrorCode::corrupt, "has a CRC");
  refused(changed(5, 0), ErrorCode::corrupt, "dtype 0");
  refused(changed(10, 0x80), ErrorCode::corrupt, "unknown terms 0x8");
  refused(changed(6, kFlagSealed | kFlagLength), ErrorCode::corrupt, "says that its payload has");
}

TEST(Frame, LengthIsCoveredByTheCrc) {
  auto frame = frame_of(sample(kFlagCrc));
  expect_refused(std::span(frame).first(frame.size() - 1), ErrorCode::corrupt, "CRC");
  frame.push_back(std::byte{0});
  expect_refused(frame, ErrorCode::corrupt, "CRC");
}

TEST(Frame, NoRoomForAHeader) {
  std::vector<std::byte> small(31);
  EXPECT_THROW(write_header(sample(0), small), Error);
}

}  // namespace
}  // namespace gradwire::wire
