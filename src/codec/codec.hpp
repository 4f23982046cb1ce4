// A codec bound to a tensor dtype, and the reader and writer of one frame. This is all that collectives know of codecs.
// Everything works on "working values": f32, or f64 where the codec is exact and the tensor is f64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"
#include "kernels/residual.hpp"

namespace gradwire::kernels {
struct Tile;
}  // namespace gradwire::kernels

namespace gradwire::codec {

using kernels::Residual;

/// Elements of a full tile: the unit of every codec.
inline constexpr std::uint64_t kTileElements = 4096;

/// Where on its way a gradient is encoded; residuals belong to one of these.
enum class EncodeSite : std::uint8_t { none, local, intra, owner };

enum class Working : std::uint8_t { f32, f64 };

/// What a frame's header says besides codec and dtype, and what encoding may depend on.
struct FrameInfo {
  std::uint32_t count = 0;       // elements
  std::uint32_t first_tile = 0;  // tile of the bucket at which the frame begins
  std::uint32_t bucket = 0;
  std::uint32_t step = 0;
  std::uint8_t hop = 0;    // 0: a rank's own values, 1: a result, 4: a sum over a node
  std::uint8_t terms = 0;  // wire::kTerm...
  std::uint8_t epoch = 0;  // of the world, modulo 256
};

struct CodecEntry;  // registry row
struct TileCoder;   // its implementation for one dtype on this CPU

class Codec {
 public:
  /// Error(unsupported) where this build has no such codec or the codec does not support the dtype.
  Codec(CodecSpec spec, DType tensor);

  [[nodiscard]] CodecSpec spec() const noexcept { return spec_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] bool lossy() const noexcept;
  [[nodiscard]] Working working() const noexcept;
  [[nodiscard]] std::size_t working_bytes() const noexcept { return working() == Working::f64 ? 8 : 4; }
  /// Payload of `count` elements that begin at a tile boundary: a pure function of spec, dtype and count.
  [[nodiscard]] std::uint64_t payload_bytes(std::uint64_t count) const noexcept;
  /// Header and payload.
  [[nodiscard]] std::uint64_t frame_bytes(std::uint64_t count) const noexcept;

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
  /// `frame` has exactly codec.frame_bytes(info.count) bytes; the writer fills all of them.
  FrameWriter(const Codec& codec, const FrameInfo& info, bool checksum, std::span<std::byte> frame);
  /// The next tile: `count` working values (4096, or what is left). With a residual of that count encodes
  /// values + residual and leaves there what was dropped; the residual of a non-finite block stays as it was.
  void write(const void* values, Residual residual, std::uint32_t count);
  /// The next tile of an exact codec, as bytes of the tensor's own dtype.
  void write_verbatim(const void* bytes, std::uint32_t count);
  /// After the last tile: writes the header and, if asked for, the CRC. Returns whether NaN or Inf was seen.
  bool finish();

 private:
  const Codec& codec_;
  FrameInfo info_;
  bool checksum_;
  bool nonfinite_ = false;
  std::span<std::byte> frame_;
  std::size_t offset_;
  std::uint32_t tile_ = 0;
};

/// Of a frame that cannot be read yet: Error(corrupt) for damage, Error(mismatch) where its terms are not `expected`.
void check_terms(std::span<const std::byte> frame, std::uint8_t expected, int peer);

/// Decodes one frame, tile by tile, in order.
class FrameReader {
 public:
  /// Checks header, size and CRC against what this rank expects. Frames of every wire version that there was can be
  /// read. Error(corrupt) for damage; Error(mismatch) where an unknown version, another codec, dtype, bucket, step,
  /// tile or count is named, with both values. `peer` is for messages only.
  FrameReader(const Codec& codec, const FrameInfo& expected, bool checksum, std::span<const std::byte> frame, int peer);
  /// The next tile, overwriting `values` (working type). Error(corrupt) where its bytes cannot be decoded; so does add.
  void read(void* values, std::uint32_t count);
  /// The next tile, added to `values`; each element rounds once.
  void add(void* values, std::uint32_t count);
  /// The next tile of an exact codec, as bytes of the tensor's own dtype.
  void read_verbatim(void* bytes, std::uint32_t count);
  [[nodiscard]] bool nonfinite() const noexcept { return nonfinite_; }

 private:
  const std::uint8_t* next_tile(std::uint32_t count);
  using Decode = bool (*)(const kernels::Tile& tile, const std::uint8_t* in, std::uint32_t count, void* values);
  void decode_tile(Decode decode, void* values, std::uint32_t count);

  const Codec& codec_;
  const TileCoder* coder_;  // of the frame's wire version
  std::span<const std::byte> frame_;
  std::size_t offset_;
  std::uint32_t tile_ = 0;
  FrameInfo info_;
  int peer_;
  bool nonfinite_ = false;
};

// Arithmetic on working values, SIMD where there is some. Each operation rounds once; bytes do not depend on the
// machine.
void add(Working type, void* accumulator, const void* values, std::uint64_t count);
void multiply(Working type, const void* values, double factor, void* out,
              std::uint64_t count);                                            // factor rounded to the type first
void divide(Working type, void* values, double divisor, std::uint64_t count);  // likewise
[[nodiscard]] bool all_finite(Working type, const void* values, std::uint64_t count);
[[nodiscard]] bool all_finite(DType dtype, const void* elements, std::uint64_t count);  // as stored in a tensor

}  // namespace gradwire::codec
