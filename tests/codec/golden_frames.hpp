// The golden frames: what this build writes for inputs that are fixed to the bit. tests/golden/versionN holds what the
// first release of wire version N wrote; a frame there must decode to the same values for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.hpp"

namespace gradwire::test {

struct GoldenFrame {
  std::string name;  // of the file, without .frame
  CodecSpec spec;
  DType dtype = DType::f32;
  codec::FrameInfo info;
  bool checksum = true;
  bool length = false;  // the frame states the length of its payload
  std::vector<std::byte> frame;
};

/// One for every registered codec and dtype: zeros, -0, a zero block, a block with NaN or Inf, tiny and large values;
/// then every codec behind topk; from version 2 on what version 1 has not: bitmaps, lengths, epochs; and terms and sums
/// over a node. The bytes are those of kWireVersion: a test of an older version reads them from its folder.
[[nodiscard]] std::vector<GoldenFrame> good_frames(int version);

struct BadFrame {
  std::string name;    // begins with the ErrorCode that reading it must give
  std::string base;    // the good frame that it is a damaged copy of; a reader expects that one
  std::string reason;  // the message must have this
  std::vector<std::byte> frame;
};

/// Damaged copies of some of `good`, whose frames are of `version`. All have a CRC that is right, but for those that
/// are refused because of it.
[[nodiscard]] std::vector<BadFrame> bad_frames(int version, const std::vector<GoldenFrame>& good);

/// The one of this name.
[[nodiscard]] const GoldenFrame& find_golden(const std::vector<GoldenFrame>& good, const std::string& name);

/// CRC-32C over the decoded working values, little-endian.
[[nodiscard]] std::uint32_t decoded_crc(const GoldenFrame& golden);

/// Reads all of `frame` as a receiver that expects `golden`: over its values, or added to them.
void read_as(const GoldenFrame& golden, std::span<const std::byte> frame, bool add, std::byte* values);

/// manifest.txt of a version: a line for each good frame, "name bytes decoded_crc", sorted as good_frames(). And
/// bad.txt: "name base", sorted as bad_frames().
[[nodiscard]] std::string manifest_line(const GoldenFrame& golden);
[[nodiscard]] std::string manifest_line(const BadFrame& bad);

}  // namespace gradwire::test
