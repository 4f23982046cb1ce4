// The table of codecs, and the implementations of each: the scalar core and one for every instruction set of this CPU.
// Tests and benchmarks walk through both, so that they cover whatever is added here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "codec/codec.hpp"
#include "kernels/stochastic_bf16.hpp"
#include "kernels/stochastic_int8.hpp"
#include "kernels/tile.hpp"

namespace gradwire::codec {

/// One codec for one tensor dtype on one instruction set. Values are working values; see kernels/tile.hpp.
struct TileCoder {
  Working working;
  std::uint32_t (*tile_bytes)(std::uint32_t k, std::uint32_t count);
  // Null for wire versions that are only read.
  bool (*encode)(const kernels::Tile& tile, const void* values, kernels::Residual residual, std::uint32_t count,
                 std::uint8_t* out);
  // Both return false for damaged bytes, and leave the values as they were.
  bool (*decode)(const kernels::Tile& tile, const std::uint8_t* in, std::uint32_t count, void* values);
  bool (*decode_add)(const kernels::Tile& tile, const std::uint8_t* in, std::uint32_t count, void* values);
  // Null unless the codec keeps the tensor's own type.
  bool (*copy)(const void* elements, std::uint32_t count, std::uint8_t* out);       // encode of stored elements
  void (*narrow)(const void* values, std::uint32_t count, std::uint8_t* elements);  // encode without padding
};

struct CodecEntry {
  std::string_view name;
  std::uint8_t id;  // the `codec` byte of a frame; never changes, never reused
  bool lossy;
};

/// Returns every codec whose frames have a size that follows from the count. The first is `exact`.
[[nodiscard]] std::span<const CodecEntry> codecs() noexcept;
/// exact+zstd: the tiles of `exact`, whose frames are packed once they are written. It needs libzstd.
inline constexpr CodecEntry kPacked{"exact+zstd", kPackedId, false};
/// Returns one of codecs() or kPacked; null when this build has none with that id or name.
[[nodiscard]] const CodecEntry* find_codec(std::uint8_t id) noexcept;
[[nodiscard]] const CodecEntry* find_codec(std::string_view name) noexcept;
/// Returns "exact, exact+zstd, bf16, ...", for messages.
[[nodiscard]] std::string codec_names();

/// How residuals are stored: the functions of kernels/stochastic_bf16.hpp and kernels/stochastic_int8.hpp.
struct ResidualCoders {
  decltype(&kernels::StochasticBf16::narrow) to_bf16 = nullptr;
  decltype(&kernels::StochasticBf16::widen) from_bf16 = nullptr;
  decltype(&kernels::StochasticInt8::narrow) to_int8 = nullptr;
  decltype(&kernels::StochasticInt8::widen) from_int8 = nullptr;
};

/// One set of implementations: the scalar cores, or those that Highway compiled for an instruction set.
struct InstructionSet {
  std::string_view name;
  // One for each of codecs(), in that order; `selected`: behind topk.
  const TileCoder* (*coders)(DType tensor, bool selected);
  ResidualCoders residuals;

  [[nodiscard]] const TileCoder& coder(const CodecEntry& codec, DType tensor, std::uint16_t k = 0) const {
    return coders(tensor, k != 0)[&codec - codecs().data()];
  }
};

/// Returns the set "scalar", then those that this CPU runs, the widest last.
[[nodiscard]] std::span<const InstructionSet> instruction_sets();
/// Returns the set in use: the last, or the first with GRADWIRE_SIMD=scalar. An unknown setting throws
/// Error(invalid_argument).
[[nodiscard]] const InstructionSet& active_instruction_set();

/// Returns the coder that reads a codec behind topk in frames of wire version 1.
[[nodiscard]] const TileCoder& version1_selected_coder(const CodecEntry& codec, DType tensor) noexcept;

}  // namespace gradwire::codec
