// The golden frames: the output of this build for inputs that are fixed to the bit. tests/golden/versionN holds the
// output of the first release of wire version N; a frame there must decode to the same values for ever.
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
  bool length = false;  // the frame states the length of its payload, and the codec needs none
  bool packed = false;  // the bytes depend on the version of libzstd
  std::vector<std::byte> frame;
};

/// Returns one frame for every registered codec and dtype: zeros, -0, a zero block, a block with NaN or Inf, tiny and
/// large values; then every codec behind topk; from version 2 on, features that version 1 lacks: bitmaps, lengths,
/// epochs, packed frames; and terms, and sums over a node. The bytes are those of kWireVersion: a test of an older
/// version reads them from its folder.
[[nodiscard]] std::vector<GoldenFrame> good_frames(int version);

struct BadFrame {
  std::string name;    // begins with the ErrorCode that reading it must give
  std::string base;    // the good frame of which it is a damaged copy; a reader expects that one
  std::string reason;  // the message must contain this
  std::vector<std::byte> frame;
};

/// Returns damaged copies of some frames of `good`, which have the version `version`. All have a correct CRC, except
/// those that are refused because of it.
[[nodiscard]] std::vector<BadFrame> bad_frames(int version, const std::vector<GoldenFrame>& good);

/// Returns the frame of this name.
[[nodiscard]] const GoldenFrame& find_golden(const std::vector<GoldenFrame>& good, const std::string& name);

/// Returns the CRC-32C of the decoded working values, little-endian.
[[nodiscard]] std::uint32_t decoded_crc(const GoldenFrame& golden);

/// Reads all of `frame` as a receiver that expects `golden`: overwrites `values`, or adds to them.
void read_as(const GoldenFrame& golden, std::span<const std::byte> frame, bool add, std::byte* values);

/// Return a line of manifest.txt of a version, one for each good frame, "name bytes decoded_crc", in the order of
/// good_frames(); and of bad.txt, "name base", in the order of bad_frames().
[[nodiscard]] std::string manifest_line(const GoldenFrame& golden);
[[nodiscard]] std::string manifest_line(const BadFrame& bad);

}  // namespace gradwire::test
