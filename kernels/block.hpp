// Block codecs: each block of a tile has a scale S, and each element a code.
// Payload of a tile: a bf16 scale for each block, in order; a code for each element, in order; zeros up to 16 bytes.
// A block with NaN or Inf has the scale NaN and codes 0, so that it decodes to NaN.
//
// A rule says what a codec is:
//   using Code; kBlock                   its code type and block length
//   uint16_t scale(absmax_bits)          S as bf16, from the bits of the largest |x| (finite)
//   Code quantize(x, inverse)            x finite, inverse = 1/S or 0
//   float level(code)                    decoded value = level(code) * S
#ifndef GRADWIRE_KERNELS_BLOCK_HPP
#define GRADWIRE_KERNELS_BLOCK_HPP

#include "kernels/numeric.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

template <class Rule>
struct BlockCore {
  using Value = float;
  using Code = typename Rule::Code;
  static constexpr std::uint32_t kBlock = Rule::kBlock;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t blocks(std::uint32_t count) {
    return (count + kBlock - 1) / kBlock;
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t count) {
    return blocks(count) * 2 + count * static_cast<std::uint32_t>(sizeof(Code));
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t /*k*/, std::uint32_t count) {
    return padded(used_bytes(count));
  }

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& /*tile*/, const float* values, float* residual,
                                          std::uint32_t count, std::uint8_t* out) {
    bool nonfinite = false;
    for (std::uint32_t block = 0; block < blocks(count); ++block) {
      nonfinite = encode_block(values, residual, block, count, out) || nonfinite;
    }
    fill_padding(out, used_bytes(count));
    return nonfinite;
  }

  GRADWIRE_HOST_DEVICE static void decode(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count,
                                          float* values) {
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = decode_one(in, i, count);
    }
  }

  GRADWIRE_HOST_DEVICE static void decode_add(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count,
                                              float* values) {
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = values[i] + decode_one(in, i, count);
    }
  }

  /// Block `block` of a tile of `count` elements; returns whether NaN or Inf was seen.
  GRADWIRE_HOST_DEVICE static bool encode_block(const float* values, float* residual, std::uint32_t block,
                                                std::uint32_t count, std::uint8_t* out) {
    const std::uint32_t first = block * kBlock;
    const std::uint32_t end = first + kBlock < count ? first + kBlock : count;
    std::uint8_t* codes = out + blocks(count) * 2;
    std::uint32_t absmax = 0;
    for (std::uint32_t i = first; i < end; ++i) {
      const std::uint32_t bits = abs_bits(residual == nullptr ? values[i] : values[i] + residual[i]);
      absmax = bits > absmax ? bits : absmax;
    }
    if (absmax >= kInfinity) {
      store(out, block, kNanBf16);
      fill_zero(codes + first * sizeof(Code), (end - first) * static_cast<std::uint32_t>(sizeof(Code)));
      return true;
    }
    const std::uint16_t scale_bits = Rule::scale(absmax);
    store(out, block, scale_bits);
    const float scale = from_bf16(scale_bits);
    const float inverse = inverse_scale(scale);
    for (std::uint32_t i = first; i < end; ++i) {
      const float x = residual == nullptr ? values[i] : values[i] + residual[i];
      const Code code = Rule::quantize(x, inverse);
      store(codes, i, code);
      if (residual != nullptr) {
        residual[i] = x - Rule::level(code) * scale;
      }
    }
    return false;
  }

  GRADWIRE_HOST_DEVICE static float decode_one(const std::uint8_t* in, std::uint32_t i, std::uint32_t count) {
    return Rule::level(load<Code>(in + blocks(count) * 2, i)) * from_bf16(load<std::uint16_t>(in, i / kBlock));
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_BLOCK_HPP
