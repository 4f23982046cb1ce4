// The golden frames: what this build writes for inputs that are fixed to the bit. tests/golden/versionN holds what the
// first release of wire version N wrote; a frame there must decode to the same values for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "gradwire/error.hpp"

namespace gradwire::test {

struct GoldenFrame {
  std::string name;  // of the file, without .frame
  CodecSpec spec;
  DType dtype = DType::f32;
  codec::FrameInfo info;
  bool checksum = true;
  std::vector<std::byte> frame;
};

/// One for every registered codec and dtype: zeros, -0, a zero block, a block with NaN or Inf, tiny and large values;
/// then every codec behind topk.
[[nodiscard]] std::vector<GoldenFrame> good_frames();

struct BadFrame {
  std::string name;  // begins with the ErrorCode that reading it must give
  ErrorCode code;
  std::vector<std::byte> frame;
};

/// Damaged copies of `good`.
[[nodiscard]] std::vector<BadFrame> bad_frames(const GoldenFrame& good);

/// CRC-32C over the decoded working values, little-endian.
[[nodiscard]] std::uint32_t decoded_crc(const GoldenFrame& golden);

/// manifest.txt of a version: a line for each good frame, "name bytes decoded_crc", sorted as good_frames().
[[nodiscard]] std::string manifest_line(const GoldenFrame& golden);

}  // namespace gradwire::test
