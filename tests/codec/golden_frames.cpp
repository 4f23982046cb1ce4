#include "golden_frames.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "codec/registry.hpp"
#include "wire/crc32c.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

static_assert(std::endian::native == std::endian::little, "golden values are stored little-endian");

// Element i, without any library function: a linear congruential sequence scaled by powers of two. Without NaN and Inf
// where they would make all of a tile NaN.
double element(std::uint32_t i, std::uint32_t& state, bool finite) {
  state = state * 1664525U + 1013904223U;
  const double x = static_cast<double>(static_cast<std::int32_t>(state)) * 0x1p-31;
  const std::uint32_t block = i / 256;
  switch (block % 6) {
    case 1: return i % 64 == 7 ? -0.0 : 0.0;
    case 2: return i == 600 && !finite ? std::numeric_limits<double>::quiet_NaN() : x;
    case 3: return x * 0x1p-120;
    case 4: return x * 0x1p100;
    case 5: return i % 256 == 200 && !finite ? -std::numeric_limits<double>::infinity() : x * 0x1p-10;
    default: return x;
  }
}

template <class T>
std::vector<std::byte> working_values(std::uint32_t count, bool finite) {
  std::vector<std::byte> bytes(count * sizeof(T));
  std::uint32_t state = 2024;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto x = static_cast<T>(element(i, state, finite));
    std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof x);
  }
  return bytes;
}

void write(GoldenFrame& golden) {
  const codec::Codec codec(golden.spec, golden.dtype);
  const std::uint32_t count = golden.info.count;
  const bool finite = golden.spec.k != 0;
  const auto values = codec.working() == codec::Working::f64 ? working_values<double>(count, finite)
                                                             : working_values<float>(count, finite);
  golden.frame.resize(codec.frame_bytes(count));
  codec::FrameWriter writer(codec, golden.info, golden.checksum, golden.frame);
  for (std::uint32_t first = 0; first < count; first += codec::kTileElements) {
    const auto tile = static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, count - first));
    writer.write(values.data() + first * codec.working_bytes(), nullptr, tile);
  }
  writer.finish();
}

}  // namespace

namespace {

GoldenFrame good_frame(const codec::CodecEntry& entry, std::uint16_t k, DType dtype) {
  GoldenFrame golden;
  golden.name =
      (k == 0 ? "" : "topk" + std::to_string(k) + "-") + std::string(entry.name) + "-" + std::string(to_string(dtype));
  golden.spec = {entry.id, k};
  golden.dtype = dtype;
  // Two tiles for f32; a short one without CRC, of a second hop, for the others.
  golden.info.count = dtype == DType::f32 ? 4096 + 300 : 1409;
  golden.info.first_tile = dtype == DType::f32 ? 7 : 0;
  golden.info.bucket = 2;
  golden.info.step = 70000;
  golden.info.hop = dtype == DType::f32 ? 0 : 1;
  golden.checksum = dtype == DType::f32 || dtype == DType::f64;
  write(golden);
  return golden;
}

}  // namespace

std::vector<GoldenFrame> good_frames() {
  std::vector<GoldenFrame> frames;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
      frames.push_back(good_frame(entry, 0, dtype));
    }
  }
  for (const codec::CodecEntry& entry : codec::codecs()) {
    frames.push_back(good_frame(entry, 41, DType::f32));
    frames.push_back(good_frame(entry, 410, entry.lossy ? DType::f32 : DType::f64));
  }
  return frames;
}

std::vector<BadFrame> bad_frames(const GoldenFrame& good) {
  std::vector<BadFrame> frames;
  const auto add = [&](ErrorCode code, const std::string& what,
                       const std::function<void(std::vector<std::byte>&)>& damage) {
    BadFrame bad{std::string(to_string(code)) + "-" + what, code, good.frame};
    damage(bad.frame);
    frames.push_back(std::move(bad));
  };
  // A header that says something else, under a CRC that is right.
  const auto add_header = [&](ErrorCode code, const std::string& what, std::size_t byte, int value) {
    add(code, what, [&](std::vector<std::byte>& frame) {
      frame[byte] = static_cast<std::byte>(value);
      std::fill_n(frame.begin() + 28, 4, std::byte{0});
      const std::uint32_t crc = wire::crc32c(frame);
      std::memcpy(frame.data() + 28, &crc, sizeof crc);
    });
  };
  add(ErrorCode::corrupt, "empty", [](auto& frame) { frame.clear(); });
  add(ErrorCode::corrupt, "half-a-header", [](auto& frame) { frame.resize(16); });
  add(ErrorCode::corrupt, "header-only", [](auto& frame) { frame.resize(32); });
  add(ErrorCode::corrupt, "one-byte-short", [](auto& frame) { frame.pop_back(); });
  add(ErrorCode::corrupt, "one-byte-long", [](auto& frame) { frame.push_back(std::byte{0}); });
  add(ErrorCode::corrupt, "payload-bit", [](auto& frame) { frame[100] ^= std::byte{0x40}; });
  add(ErrorCode::corrupt, "header-bit", [](auto& frame) { frame[12] ^= std::byte{1}; });
  add(ErrorCode::corrupt, "crc-bit", [](auto& frame) { frame[28] ^= std::byte{1}; });
  add_header(ErrorCode::corrupt, "magic", 0, 'X');
  add_header(ErrorCode::corrupt, "flags", 6, 0xF1);
  add_header(ErrorCode::corrupt, "unknown-terms", 10, 0x80);
  add_header(ErrorCode::corrupt, "length", 6, 5);
  add_header(ErrorCode::mismatch, "terms", 10, 0x10);
  add_header(ErrorCode::mismatch, "epoch", 11, 1);
  add_header(ErrorCode::corrupt, "dtype", 5, 77);
  add_header(ErrorCode::mismatch, "version", 4, 3);
  add_header(ErrorCode::mismatch, "other-dtype", 5, good.dtype == DType::f64 ? 1 : 4);
  add_header(ErrorCode::mismatch, "codec", 7, 200);
  add_header(ErrorCode::mismatch, "k", 8, 41);
  add_header(ErrorCode::mismatch, "hop", 10, 9);
  add_header(ErrorCode::mismatch, "count", 15, 0xFF);
  add_header(ErrorCode::mismatch, "first-tile", 16, 99);
  add_header(ErrorCode::mismatch, "bucket", 20, 99);
  add_header(ErrorCode::mismatch, "step", 24, 0);
  return frames;
}

std::uint32_t decoded_crc(const GoldenFrame& golden) {
  const codec::Codec codec(golden.spec, golden.dtype);
  const std::uint32_t count = golden.info.count;
  std::vector<double> storage(count);  // aligned for either working type
  auto* values = reinterpret_cast<std::byte*>(storage.data());
  codec::FrameReader reader(codec, golden.info, golden.checksum, golden.frame, 0);
  for (std::uint32_t first = 0; first < count; first += codec::kTileElements) {
    const auto tile = static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, count - first));
    reader.read(values + first * codec.working_bytes(), tile);
  }
  return wire::crc32c(std::span(values, count * codec.working_bytes()));
}

std::string manifest_line(const GoldenFrame& golden) {
  return golden.name + " " + std::to_string(golden.frame.size()) + " " + std::to_string(decoded_crc(golden));
}

}  // namespace gradwire::test
