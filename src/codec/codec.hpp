// A codec bound to a tensor dtype, and the reader and writer of one frame. Collectives use codecs only through this
// header. Everything works on "working values": f32, or f64 where the codec is exact and the tensor is f64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "codec/byte_planes.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"
#include "kernels/residual.hpp"
#include "kernels/stochastic_bf16.hpp"
#include "memory/block.hpp"

namespace gradwire::kernels {
struct Tile;
}  // namespace gradwire::kernels

namespace gradwire::codec {

using kernels::Residual;

/// Elements of a full tile: the unit of every codec.
inline constexpr std::uint64_t kTileElements = 4096;

/// The id of exact+zstd, the only codec that packs frames.
inline constexpr std::uint8_t kPackedId = 9;

/// The place on a gradient's way where it is encoded; each residual belongs to one of these.
enum class EncodeSite : std::uint8_t { none, local, intra, owner };

enum class Working : std::uint8_t { f32, f64 };

/// The fields of a frame's header besides codec and dtype, on which encoding may depend.
struct FrameInfo {
  std::uint32_t count = 0;       // elements
  std::uint32_t first_tile = 0;  // tile of the bucket at which the frame begins
  std::uint32_t bucket = 0;
  std::uint32_t step = 0;
  std::uint8_t hop = 0;    // 0: a rank's own values, 1: a result, 4: a sum over a node
  std::uint8_t terms = 0;  // wire::kTerm...
  std::uint8_t epoch = 0;  // the world's epoch, modulo 256
};

struct CodecEntry;  // registry row
struct TileCoder;   // its implementation for one dtype on this CPU

class Codec {
 public:
  /// Throws Error(unsupported) where this build has no such codec, the codec does not support the dtype, or a library
  /// that it needs is missing.
  Codec(CodecSpec spec, DType tensor);

  [[nodiscard]] CodecSpec spec() const noexcept { return spec_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] bool lossy() const noexcept;
  /// Returns whether frames are packed, and so differ in size by what they hold: exact+zstd.
  [[nodiscard]] bool packed() const noexcept { return spec_.values == kPackedId; }
  [[nodiscard]] Working working() const noexcept;
  [[nodiscard]] std::size_t working_bytes() const noexcept { return working() == Working::f64 ? 8 : 4; }
  /// Returns the bytes of the payload of `count` elements that begin at a tile boundary: a pure function of spec, dtype
  /// and count. A packed codec takes no more than that.
  [[nodiscard]] std::uint64_t payload_bytes(std::uint64_t count) const noexcept;
  /// Returns the bytes of header and payload; the most that they can be for a packed codec.
  [[nodiscard]] std::uint64_t frame_bytes(std::uint64_t count) const noexcept;
  /// Returns the bytes that a FrameReader needs to unpack a frame of `count` elements; 0 unless packed().
  [[nodiscard]] std::uint64_t room_bytes(std::uint64_t count) const noexcept {
    return packed() ? count * element_bytes(dtype_) : 0;
  }

 private:
  friend class FrameWriter;
  friend class FrameReader;
  CodecSpec spec_;
  DType dtype_;
  const CodecEntry* entry_;
  const TileCoder* coder_;
};

/// Encodes one frame, tile by tile, in order.
class FrameWriter {
 public:
  /// `frame` has exactly codec.frame_bytes(info.count) bytes; the writer fills all of them, or of a packed codec the
  /// first bytes().
  FrameWriter(const Codec& codec, const FrameInfo& info, bool checksum, std::span<std::byte> frame);
  /// Writes the next tile: `count` working values (4096, or the rest of the frame). With a residual of that count it
  /// encodes values + residual and leaves in the residual what was dropped; that of a non-finite block stays as it was.
  void write(const void* values, Residual residual, std::uint32_t count);
  /// Writes the next tile of an exact codec, given as bytes of the tensor's own dtype.
  void write_verbatim(const void* bytes, std::uint32_t count);
  /// Call it after the last tile: packs the payload where that makes the frame smaller, writes the header and, if asked
  /// for, the CRC. Returns whether NaN or Inf was seen.
  bool finish();
  /// Returns the bytes of the frame, once it is finished.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return offset_; }

 private:
  const Codec& codec_;
  FrameInfo info_;
  bool checksum_;
  bool nonfinite_ = false;
  std::span<std::byte> frame_;
  std::size_t offset_;
  std::uint32_t tile_ = 0;
};

/// Checks the terms of a frame before a reader for it can be made: Error(corrupt) for damage, Error(mismatch) where its
/// terms are not `expected`.
void check_terms(std::span<const std::byte> frame, std::uint8_t expected, int peer);

/// Decodes one frame, tile by tile, in order.
class FrameReader {
 public:
  /// Checks header, size and CRC against what this rank expects. Frames of all wire versions can be read.
  /// Error(corrupt) for damage; Error(mismatch), with both values, where the header names an unknown version, another
  /// codec, dtype, bucket, step, tile or count. `peer` is for messages only. A packed frame is unpacked at once, into
  /// `room`, which must outlive the reader; with fewer than codec.room_bytes(count) bytes the reader allocates them.
  FrameReader(const Codec& codec, const FrameInfo& expected, bool checksum, std::span<const std::byte> frame, int peer,
              std::span<std::byte> room = {});
  /// Decodes the next tile into `values` (working type). read() and add() throw Error(corrupt) where its bytes cannot
  /// be decoded.
  void read(void* values, std::uint32_t count);
  /// Adds the next tile to `values`; each element rounds once.
  void add(void* values, std::uint32_t count);
  /// Reads the next tile of an exact codec as bytes of the tensor's own dtype.
  void read_verbatim(void* bytes, std::uint32_t count);
  [[nodiscard]] bool nonfinite() const noexcept { return nonfinite_; }

 private:
  void unpack_payload(std::span<std::byte> room);
  void merge_tile(std::uint32_t count, std::byte* to);
  const std::uint8_t* next_tile(std::uint32_t count);
  using Decode = bool (*)(const kernels::Tile& tile, const std::uint8_t* in, std::uint32_t count, void* values);
  void decode_tile(Decode decode, void* values, std::uint32_t count);

  const Codec& codec_;
  const TileCoder* coder_;  // the one for the frame's wire version
  std::span<const std::byte> frame_;
  std::size_t offset_;
  std::uint32_t tile_ = 0;
  FrameInfo info_;
  int peer_;
  bool nonfinite_ = false;
  bool packed_ = false;  // the payload is packed, and the tiles come from `planes_`
  memory::Block own_room_;
  Planes planes_{};
};

// Arithmetic on working values, with SIMD where the machine has it. Each operation rounds once; bytes do not depend on
// the machine.
void add(Working type, void* accumulator, const void* values, std::uint64_t count);
void multiply(Working type, const void* values, double factor, void* out,
              std::uint64_t count);                                            // factor rounded to the type first
void divide(Working type, void* values, double divisor, std::uint64_t count);  // likewise
/// Rounds stochastically (kernels/stochastic_bf16.hpp); `index` is the low half of the index of the first value.
void round_to_bf16(kernels::RoundingKey key, std::uint32_t index, const float* values, std::uint64_t count,
                   std::uint16_t* out);
void widen_bf16(const std::uint16_t* in, std::uint64_t count, float* values);
/// Does the same to blocks of int8 (kernels/stochastic_int8.hpp); `index` is a multiple of their size.
void round_to_int8(kernels::RoundingKey key, std::uint32_t index, const float* values, std::uint64_t blocks,
                   std::uint8_t* out);
void widen_int8(const std::uint8_t* in, std::uint64_t blocks, float* values);
[[nodiscard]] bool all_finite(Working type, const void* values, std::uint64_t count);
[[nodiscard]] bool all_finite(DType dtype, const void* elements, std::uint64_t count);  // as stored in a tensor

}  // namespace gradwire::codec
