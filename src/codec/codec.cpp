#include "codec/codec.hpp"

#include <algorithm>
#include <cstring>

#include "codec/float_environment.hpp"
#include "codec/registry.hpp"
#include "codec/zstd.hpp"
#include "gradwire/error.hpp"
#include "kernels/working_memory.hpp"
#include "wire/frame.hpp"

namespace gradwire::codec {
namespace {

static_assert(kTileElements == kernels::kTileElements);

[[noreturn]] void misuse(const std::string& what) { throw Error(ErrorCode::internal, "codec: " + what); }

// Checks that `count` is a full tile, or the rest of a frame of `total` elements after `done` tiles.
void check_tile(std::uint32_t count, std::uint32_t total, std::uint32_t done) {
  const std::uint64_t begin = done * kTileElements;
  const std::uint64_t left = begin < total ? total - begin : 0;
  if (count != std::min(left, kTileElements)) {
    misuse("a tile of " + std::to_string(count) + " elements where " + std::to_string(left) + " are left");
  }
}

}  // namespace

Codec::Codec(CodecSpec spec, DType tensor) : spec_(spec), dtype_(tensor), entry_(find_codec(spec.values)) {
  if (entry_ == nullptr) {
    throw Error(ErrorCode::unsupported,
                "codec id " + std::to_string(spec.values) + " is not in this build, which has " + codec_names());
  }
  if (spec.k > kTileElements) {
    throw Error(ErrorCode::unsupported, "codec \"" + spec.to_string() + "\" keeps more elements than a tile has (" +
                                            std::to_string(kTileElements) + ")");
  }
  if (element_bytes(tensor) == 0) {
    throw Error(ErrorCode::unsupported, "codec \"" + spec.to_string() + "\" does not support dtype " +
                                            std::to_string(static_cast<int>(tensor)) + "; use f32, f16, bf16 or f64");
  }
  if (packed()) {
    if (spec.k != 0) {
      throw Error(ErrorCode::unsupported, "codec \"" + spec.to_string() + "\": behind topk write exact, whose " +
                                              "selected values do not shrink enough to be packed");
    }
    require_zstd();
  }
  coder_ = &active_instruction_set().coder(packed() ? codecs().front() : *entry_, tensor, spec.k);
}

bool Codec::lossy() const noexcept { return entry_->lossy || spec_.k != 0; }

Working Codec::working() const noexcept { return coder_->working; }

namespace {

std::uint64_t payload_of(const TileCoder& coder, std::uint32_t k, std::uint64_t count) {
  const auto tail = static_cast<std::uint32_t>(count % kTileElements);
  const std::uint64_t full = count / kTileElements * coder.tile_bytes(k, kernels::kTileElements);
  return full + (tail == 0 ? 0 : coder.tile_bytes(k, tail));
}

}  // namespace

std::uint64_t Codec::payload_bytes(std::uint64_t count) const noexcept { return payload_of(*coder_, spec_.k, count); }

std::uint64_t Codec::frame_bytes(std::uint64_t count) const noexcept {
  return wire::kHeaderBytes + payload_bytes(count);
}

namespace {

kernels::Tile tile_at(const FrameInfo& info, std::uint32_t done, CodecSpec spec) {
  return {.bucket = info.bucket, .step = info.step, .index = info.first_tile + done, .k = spec.k};
}

Elements elements_of(const Codec& codec, std::uint32_t count) { return {count, element_bytes(codec.dtype())}; }

wire::FrameHeader header_for(const Codec& codec, const FrameInfo& info) {
  wire::FrameHeader header;
  header.dtype = static_cast<std::uint8_t>(codec.dtype());
  header.codec = codec.spec().values;
  header.k = codec.spec().k;
  header.hop = info.hop;
  header.terms = info.terms;
  header.epoch = info.epoch;
  header.count = info.count;
  header.first_tile = info.first_tile;
  header.bucket = info.bucket;
  header.step = info.step;
  return header;
}

}  // namespace

FrameWriter::FrameWriter(const Codec& codec, const FrameInfo& info, bool checksum, std::span<std::byte> frame)
    : codec_(codec), info_(info), checksum_(checksum), frame_(frame), offset_(wire::kHeaderBytes) {
  if (frame.size() != codec.frame_bytes(info.count)) {
    misuse("a frame of " + std::to_string(info.count) + " elements needs " +
           std::to_string(codec.frame_bytes(info.count)) + " bytes, not " + std::to_string(frame.size()));
  }
}

void FrameWriter::write(const void* values, Residual residual, std::uint32_t count) {
  check_tile(count, info_.count, tile_);
  if (count == 0) {
    return;
  }
  const FloatEnvironment environment;
  auto* out = reinterpret_cast<std::uint8_t*>(frame_.data() + offset_);
  nonfinite_ |= codec_.coder_->encode(tile_at(info_, tile_, codec_.spec()), values, residual, count, out);
  offset_ += codec_.coder_->tile_bytes(codec_.spec().k, count);
  ++tile_;
}

void FrameWriter::write_verbatim(const void* bytes, std::uint32_t count) {
  check_tile(count, info_.count, tile_);
  if (codec_.coder_->copy == nullptr) {
    misuse("write_verbatim with codec " + codec_.spec().to_string() + ", which is not exact");
  }
  if (count == 0) {
    return;
  }
  nonfinite_ |= codec_.coder_->copy(bytes, count, reinterpret_cast<std::uint8_t*>(frame_.data() + offset_));
  offset_ += codec_.coder_->tile_bytes(codec_.spec().k, count);
  ++tile_;
}

bool FrameWriter::finish() {
  if (offset_ != frame_.size()) {
    misuse("finish() after " + std::to_string(tile_) + " tiles of a frame of " + std::to_string(info_.count) +
           " elements");
  }
  wire::FrameHeader header = header_for(codec_, info_);
  header.flags = static_cast<std::uint8_t>((checksum_ ? wire::kFlagCrc : 0) | (nonfinite_ ? wire::kFlagNonfinite : 0));
  constexpr std::size_t kBegin = wire::header_bytes(wire::kFlagLength);
  if (codec_.packed() && offset_ > kBegin) {
    // A packed frame is smaller by at least a byte.
    header.length = pack(frame_.data() + wire::kHeaderBytes, elements_of(codec_, info_.count),
                         frame_.subspan(kBegin, offset_ - kBegin - 1));
    if (header.length > 0) {
      header.flags |= wire::kFlagLength;
      offset_ = kBegin + header.length;
    }
  }
  wire::write_header(header, frame_.first(offset_));
  return nonfinite_;
}

namespace {

template <class A, class B>
void expect(const char* what, A got, B wanted, int peer) {
  if (got != wanted) {
    using std::to_string;
    throw Error(ErrorCode::mismatch, "frame from rank " + to_string(peer) + " has " + what + " " + to_string(got) +
                                         " where " + to_string(wanted) +
                                         " was expected; every rank must make the same calls with the same options");
  }
}

void expect_text(const char* what, const std::string& got, const std::string& wanted, int peer) {
  if (got != wanted) {
    throw Error(ErrorCode::mismatch, "frame from rank " + std::to_string(peer) + " has " + what + " " + got +
                                         " where " + wanted + " was expected; every rank must have the same policy");
  }
}

std::string describe_terms(std::uint8_t terms) {
  return std::string("a ") + ((terms & wire::kTermMean) != 0 ? "mean" : "sum") + " with " +
         ((terms & wire::kTermWeighted) != 0 ? "a" : "no") + " weight and " +
         ((terms & wire::kTermFeedback) != 0 ? "a" : "no") + " feedback buffer";
}

wire::FrameHeader parse_from(std::span<const std::byte> frame, int peer) {
  try {
    return wire::parse_header(frame);
  } catch (const Error& error) {
    throw Error(error.code(), "from rank " + std::to_string(peer) + ": " + error.what());
  }
}

void expect_terms(std::uint8_t got, std::uint8_t wanted, int peer) {
  if (got != wanted) {
    throw Error(ErrorCode::mismatch, "frame from rank " + std::to_string(peer) + " is of " + describe_terms(got) +
                                         " where " + describe_terms(wanted) +
                                         " was expected; every rank must make the same calls with the same options");
  }
}

}  // namespace

void check_terms(std::span<const std::byte> frame, std::uint8_t expected, int peer) {
  expect_terms(parse_from(frame, peer).terms, expected, peer);
}

FrameReader::FrameReader(const Codec& codec, const FrameInfo& expected, bool checksum, std::span<const std::byte> frame,
                         int peer, std::span<std::byte> room)
    : codec_(codec), coder_(codec.coder_), frame_(frame), info_(expected), peer_(peer) {
  const wire::FrameHeader header = parse_from(frame, peer);
  const CodecSpec spec{header.codec, header.k};
  expect_text("codec", spec.to_string(), codec.spec().to_string(), peer);
  expect_text("dtype", std::string(to_string(static_cast<DType>(header.dtype))), std::string(to_string(codec.dtype())),
              peer);
  expect("bucket", header.bucket, expected.bucket, peer);
  expect("step", header.step, expected.step, peer);
  expect("first tile", header.first_tile, expected.first_tile, peer);
  expect("count", header.count, expected.count, peer);
  expect("hop", header.hop, expected.hop, peer);
  expect_terms(header.terms, expected.terms, peer);
  expect("epoch", header.epoch, expected.epoch, peer);
  if (checksum && (header.flags & wire::kFlagCrc) == 0) {
    throw Error(ErrorCode::mismatch, "frame from rank " + std::to_string(peer) +
                                         " has no CRC, this rank expects one; set checksum alike on every rank");
  }
  if (header.version == 1 && header.k != 0) {
    coder_ = &version1_selected_coder(*codec.entry_, codec.dtype());
  }
  nonfinite_ = (header.flags & wire::kFlagNonfinite) != 0;
  offset_ = wire::header_bytes(header.flags);
  packed_ = codec.packed() && (header.flags & wire::kFlagLength) != 0;
  if (packed_) {
    unpack_payload(room);
    return;
  }
  if (const std::uint64_t bytes = offset_ + payload_of(*coder_, header.k, header.count); frame.size() != bytes) {
    throw Error(ErrorCode::corrupt, "frame from rank " + std::to_string(peer) + ": has " +
                                        std::to_string(frame.size()) + " bytes, " + std::to_string(header.count) +
                                        " elements need " + std::to_string(bytes));
  }
}

void FrameReader::unpack_payload(std::span<std::byte> room) {
  const std::string source = "frame from rank " + std::to_string(peer_);
  if (frame_.size() >= codec_.frame_bytes(info_.count)) {
    throw Error(ErrorCode::corrupt, source + ": is packed and has " + std::to_string(frame_.size()) + " bytes, " +
                                        std::to_string(info_.count) + " elements that are not have " +
                                        std::to_string(codec_.frame_bytes(info_.count)));
  }
  const std::uint64_t needed = codec_.room_bytes(info_.count);
  if (room.size() < needed) {
    own_room_ = memory::Block(needed, memory::MemoryUse::frames);
    room = {own_room_.data(), needed};
  }
  planes_ = unpack(frame_.subspan(offset_), elements_of(codec_, info_.count), room, source);
}

// Puts the next tile together.
void FrameReader::merge_tile(std::uint32_t count, std::byte* to) {
  merge(planes_, tile_ * static_cast<std::uint32_t>(kTileElements), elements_of(codec_, count), to);
  tile_ += count == 0 ? 0 : 1;
}

const std::uint8_t* FrameReader::next_tile(std::uint32_t count) {
  check_tile(count, info_.count, tile_);
  if (packed_) {
    auto* to = static_cast<std::byte*>(kernels::working_memory());  // exact itself needs none
    merge_tile(count, to);
    return reinterpret_cast<const std::uint8_t*>(to);
  }
  const auto* tile = reinterpret_cast<const std::uint8_t*>(frame_.data() + offset_);
  offset_ += count == 0 ? 0 : coder_->tile_bytes(codec_.spec().k, count);
  tile_ += count == 0 ? 0 : 1;
  return tile;
}

void FrameReader::decode_tile(Decode decode, void* values, std::uint32_t count) {
  const kernels::Tile tile = tile_at(info_, tile_, codec_.spec());
  const std::uint8_t* in = next_tile(count);
  if (count == 0) {
    return;
  }
  const FloatEnvironment environment;
  if (!decode(tile, in, count, values)) {
    throw Error(ErrorCode::corrupt, "frame from rank " + std::to_string(peer_) + ": tile " +
                                        std::to_string(tile.index) +
                                        ": indices not ascending, beyond the tile or not as many as it keeps");
  }
}

void FrameReader::read(void* values, std::uint32_t count) { decode_tile(coder_->decode, values, count); }

void FrameReader::add(void* values, std::uint32_t count) { decode_tile(coder_->decode_add, values, count); }

void FrameReader::read_verbatim(void* bytes, std::uint32_t count) {
  if (coder_->copy == nullptr) {
    misuse("read_verbatim with codec " + codec_.spec().to_string() + ", which is not exact");
  }
  if (packed_) {
    check_tile(count, info_.count, tile_);
    merge_tile(count, static_cast<std::byte*>(bytes));
    return;
  }
  const std::uint8_t* in = next_tile(count);
  if (count != 0) {
    std::memcpy(bytes, in, count * element_bytes(codec_.dtype()));
  }
}

}  // namespace gradwire::codec
