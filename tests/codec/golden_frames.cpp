#include "golden_frames.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "codec/registry.hpp"
#include "wire/crc32c.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

static_assert(std::endian::native == std::endian::little, "golden values are stored little-endian");

// Returns element i, without any library function: a linear congruential sequence scaled by powers of two. With
// `finite`, there are no NaN and Inf, which could make all of a tile NaN.
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

template <class Body>
void over_tiles(std::uint32_t count, Body body) {
  for (std::uint32_t first = 0; first < count; first += codec::kTileElements) {
    body(first, static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, count - first)));
  }
}

// Only packed frames state a length, so others get theirs here, inserted after the header.
void state_length(GoldenFrame& golden) {
  wire::FrameHeader header = wire::parse_header(golden.frame);
  header.flags |= wire::kFlagLength;
  header.length = golden.frame.size() - wire::kHeaderBytes;
  golden.frame.insert(golden.frame.begin() + wire::kHeaderBytes, wire::kLengthBytes, std::byte{0});
  wire::write_header(header, golden.frame);
}

void write(GoldenFrame& golden) {
  const codec::Codec codec(golden.spec, golden.dtype);
  const std::uint32_t count = golden.info.count;
  const bool finite = golden.spec.k != 0;
  const auto values = codec.working() == codec::Working::f64 ? working_values<double>(count, finite)
                                                             : working_values<float>(count, finite);
  golden.frame.resize(codec.frame_bytes(count));
  golden.packed = codec.packed();
  codec::FrameWriter writer(codec, golden.info, golden.checksum, golden.frame);
  over_tiles(count, [&](std::uint32_t first, std::uint32_t tile) {
    writer.write(values.data() + first * codec.working_bytes(), nullptr, tile);
  });
  writer.finish();
  golden.frame.resize(writer.bytes());
  if (golden.length) {
    state_length(golden);
  }
}

// The fields of the header besides codec and dtype.
struct Extras {
  std::string name;  // name of these fields
  std::optional<std::uint8_t> hop = {};
  std::uint8_t terms = 0;
  std::uint8_t epoch = 0;
  bool length = false;
};

GoldenFrame good_frame(const codec::CodecEntry& entry, std::uint16_t k, DType dtype, const Extras& extras = {}) {
  GoldenFrame golden;
  golden.name = extras.name + (k == 0 ? "" : "topk" + std::to_string(k) + "-") + std::string(entry.name) + "-" +
                std::string(to_string(dtype));
  golden.spec = {entry.id, k};
  golden.dtype = dtype;
  // f32 has two tiles; the other dtypes have a short one without CRC, of a second hop.
  golden.info.count = dtype == DType::f32 ? 4096 + 300 : 1409;
  golden.info.first_tile = dtype == DType::f32 ? 7 : 0;
  golden.info.bucket = 2;
  golden.info.step = 70000;
  golden.info.hop = extras.hop.value_or(dtype == DType::f32 ? 0 : 1);
  golden.info.terms = extras.terms;
  golden.info.epoch = extras.epoch;
  golden.checksum = dtype == DType::f32 || dtype == DType::f64;
  golden.length = extras.length;
  write(golden);
  return golden;
}

// Adds frames with features that only version 2 has, or that the folder's frames of version 1 do not show.
void add_version2(std::vector<GoldenFrame>& frames) {
  const auto add = [&](const char* codec, std::uint16_t k, DType dtype, const Extras& extras = {}) {
    frames.push_back(good_frame(*codec::find_codec(codec), k, dtype, extras));
  };
  const std::uint8_t all_terms = wire::kTermMean | wire::kTermFeedback | wire::kTermWeighted;
  add("int8", 1024, DType::f32);  // the most that is no bitmap, with as many bytes as a bitmap
  add("int8", 1500, DType::f32);
  add("exact", 1500, DType::f16);
  add("exact", 1500, DType::f64);
  add("bf16", 1500, DType::f64);
  add("sign", 4096, DType::f32);
  add("fp8", 0, DType::f32, {.name = "length-", .length = true});
  add("int4", 0, DType::bf16, {.name = "length-", .length = true});
  add("int2", 41, DType::f64, {.name = "length-", .length = true});
  add("int8", 0, DType::f32, {.name = "epoch200-", .epoch = 200});
  add("exact", 0, DType::bf16, {.name = "mean-", .terms = wire::kTermMean});
  add("int4", 0, DType::f32, {.name = "mean-feedback-weights-", .terms = all_terms});
  add("int4", 0, DType::f32, {.name = "node-", .hop = 4});
  add("int2", 1500, DType::f32,
      {.name = "node-weights-epoch255-length-", .hop = 4, .terms = wire::kTermWeighted, .epoch = 255, .length = true});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    add("exact+zstd", 0, dtype);
  }
}

}  // namespace

std::vector<GoldenFrame> good_frames(int version) {
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
  if (version > 1) {
    add_version2(frames);
  }
  return frames;
}

const GoldenFrame& find_golden(const std::vector<GoldenFrame>& good, const std::string& name) {
  return *std::find_if(good.begin(), good.end(), [&](const GoldenFrame& golden) { return golden.name == name; });
}

void read_as(const GoldenFrame& golden, std::span<const std::byte> frame, bool add, std::byte* values) {
  const codec::Codec codec(golden.spec, golden.dtype);
  codec::FrameReader reader(codec, golden.info, golden.checksum, frame, 0);
  over_tiles(golden.info.count, [&](std::uint32_t first, std::uint32_t tile) {
    std::byte* to = values + first * codec.working_bytes();
    add ? reader.add(to, tile) : reader.read(to, tile);
  });
}

std::uint32_t decoded_crc(const GoldenFrame& golden) {
  std::vector<double> storage(golden.info.count);  // aligned for either working type
  auto* values = reinterpret_cast<std::byte*>(storage.data());
  read_as(golden, golden.frame, false, values);
  return wire::crc32c(std::span(values, golden.info.count * codec::Codec(golden.spec, golden.dtype).working_bytes()));
}

std::string manifest_line(const GoldenFrame& golden) {
  return golden.name + " " + std::to_string(golden.frame.size()) + " " + std::to_string(decoded_crc(golden));
}

std::string manifest_line(const BadFrame& bad) { return bad.name + " " + bad.base; }

}  // namespace gradwire::test
