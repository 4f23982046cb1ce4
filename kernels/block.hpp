// Block codecs: each block of a tile has a scale S, and each element a code.
// Payload of a tile: a bf16 scale for each block, in order; a code for each element, in order; zeros up to 16 bytes.
// A block with NaN or Inf has the scale NaN and codes 0, so that it decodes to NaN.
//
// A rule says what a codec is:
//   using Code; kBlock                   its code type and block length
//   kRare                                absmax_bits from which on SIMD leaves a block to the scalar core
//   uint16_t scale(absmax_bits)          S as bf16, from the bits of the largest magnitude (finite)
//   Code quantize(x, inverse)            x finite, inverse = 1/S, S not 0
//   float level(code)                    decoded value = level(code) * S
// SIMD leaves blocks with S = 0 to the scalar core too.
#ifndef GRADWIRE_KERNELS_BLOCK_HPP
#define GRADWIRE_KERNELS_BLOCK_HPP

#include "kernels/run.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

template <class Rule>
struct SelectedBlock;

template <class Rule>
struct BlockCore {
  using Value = float;
  using Selected = SelectedBlock<Rule>;
  using Code = typename Rule::Code;
  static constexpr std::uint32_t kBlock = Rule::kBlock;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t blocks(std::uint32_t count) {
    return (count + kBlock - 1) / kBlock;
  }
  /// Where the codes begin.
  GRADWIRE_HOST_DEVICE static constexpr std::size_t scale_bytes(std::uint32_t count) {
    return std::size_t{blocks(count)} * 2;
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t count) {
    return blocks(count) * 2 + count * static_cast<std::uint32_t>(sizeof(Code));
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t /*k*/, std::uint32_t count) {
    return padded(used_bytes(count));
  }

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& /*tile*/, const float* values, Residual residual,
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

  /// Encodes block `block` of a tile of `count` elements; returns whether NaN or Inf was seen.
  GRADWIRE_HOST_DEVICE static bool encode_block(const float* values, Residual residual, std::uint32_t block,
                                                std::uint32_t count, std::uint8_t* out) {
    const Run run = block_run(values, residual, block * kBlock, kBlock, count);
    return encode_run(run, out + std::size_t{block} * 2,
                      out + scale_bytes(count) + std::size_t{block} * kBlock * sizeof(Code));
  }

  /// Encodes one block of any length.
  GRADWIRE_HOST_DEVICE static bool encode_run(const Run& run, std::uint8_t* scale_out, std::uint8_t* codes) {
    const std::uint32_t absmax = largest(run);
    const bool nonfinite = absmax >= kInfinity;
    const std::uint16_t scale_bits = nonfinite ? kNanBf16 : Rule::scale(absmax);
    store(scale_out, 0, scale_bits);
    if (nonfinite || scale_bits == 0) {  // all codes are 0; finite values stay in the residual
      fill_zero(codes, run.count * static_cast<std::uint32_t>(sizeof(Code)));
      if (nonfinite) {
        run.residual.keep(run.count);
      } else {
        keep_all(run);
      }
      return nonfinite;
    }
    const float scale = from_bf16(scale_bits);
    const float inverse = 1.0F / scale;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const float x = run.at(i);
      const Code code = Rule::quantize(x, inverse);
      store(codes, i, code);
      if (!run.residual.none()) {
        run.residual.after[i] = x - Rule::level(code) * scale;
      }
    }
    return false;
  }

  GRADWIRE_HOST_DEVICE static float decode_one(const std::uint8_t* in, std::uint32_t i, std::uint32_t count) {
    return Rule::level(load<Code>(in + scale_bytes(count), i)) * from_bf16(load<std::uint16_t>(in, i / kBlock));
  }
};

/// The coder of selected values: one block, a scale and the codes.
template <class Rule>
struct SelectedBlock {
  using Value = float;
  using Code = typename Rule::Code;
  static constexpr std::uint32_t kNonfiniteFrom = kInfinity;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t bytes(std::uint32_t count) {
    return 2 + count * static_cast<std::uint32_t>(sizeof(Code));
  }
  GRADWIRE_HOST_DEVICE static bool encode(const float* values, std::uint32_t count, std::uint8_t* out) {
    return BlockCore<Rule>::encode_run(Run{values, nullptr, count}, out, out + 2);
  }
  GRADWIRE_HOST_DEVICE static void decode(const std::uint8_t* in, std::uint32_t count, float* values) {
    const float scale = from_bf16(load<std::uint16_t>(in, 0));
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = Rule::level(load<Code>(in + 2, i)) * scale;
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_BLOCK_HPP

// SIMD. Lanes is the rule over whole vectors; codes are 32-bit lanes:
//   VI32 quantize(x * inverse); VF32 level(codes); store(four vectors of codes, out), load(in, four vectors)
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_BLOCK_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_BLOCK_SIMD_HPP
#undef GRADWIRE_KERNELS_BLOCK_SIMD_HPP
#else
#define GRADWIRE_KERNELS_BLOCK_SIMD_HPP
#endif

#include "kernels/simd.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

template <class Rule, class Lanes>
struct BlockSimd : BlockCore<Rule> {
  using Core = BlockCore<Rule>;
  using Code = typename Rule::Code;
  static constexpr std::uint32_t kBlock = Rule::kBlock;

  static bool encode(const Tile& /*tile*/, const float* values, Residual residual, std::uint32_t count,
                     std::uint8_t* out) {
    const bool nonfinite = residual.none() ? encode_blocks<false>(values, residual, count, out)
                                           : encode_blocks<true>(values, residual, count, out);
    fill_padding(out, Core::used_bytes(count));
    return nonfinite;
  }

  static void decode(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<false>(in, count, values);
  }
  static void decode_add(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<true>(in, count, values);
  }

 private:
  template <bool kResidual>
  static HWY_INLINE VI32 quantize(const float* values, Residual residual, std::size_t i, VF32 scale, VF32 inverse) {
    const VF32 x = input<kResidual>(values, residual.before, i);
    const VI32 code = Lanes::quantize(x * inverse);
    if constexpr (kResidual) {
      hn::StoreU(x - Lanes::level(code) * scale, F32(), residual.after + i);
    }
    return code;
  }

  template <bool kResidual>
  static HWY_INLINE void encode_codes(const float* values, Residual residual, float s, std::uint8_t* codes) {
    const std::size_t n = lanes();
    const VF32 scale = hn::Set(F32(), s);
    const VF32 inverse = hn::Set(F32(), 1.0F / s);
    for (std::size_t i = 0; i < kBlock; i += 4 * n) {
      Lanes::store(quantize<kResidual>(values, residual, i, scale, inverse),
                   quantize<kResidual>(values, residual, i + n, scale, inverse),
                   quantize<kResidual>(values, residual, i + 2 * n, scale, inverse),
                   quantize<kResidual>(values, residual, i + 3 * n, scale, inverse), codes + i * sizeof(Code));
    }
  }

  static HWY_NOINLINE bool encode_scalar(const float* values, Residual residual, std::uint32_t block,
                                         std::uint32_t count, std::uint8_t* out) {
    return Core::encode_block(values, residual, block, count, out);
  }

  // Encodes blocks in groups that stay in the cache, all scales of a group first: computing a scale from the largest
  // value has a long latency, which the blocks of a group overlap.
  template <bool kResidual>
  static HWY_INLINE bool encode_blocks(const float* values, Residual residual, std::uint32_t count, std::uint8_t* out) {
    constexpr std::uint32_t kGroup = 1024 / kBlock;
    std::uint8_t* codes = out + Core::scale_bytes(count);
    const std::uint32_t whole = count / kBlock;
    bool nonfinite = false;
    for (std::uint32_t group = 0; group < whole; group += kGroup) {
      const std::uint32_t end = whole - group < kGroup ? whole : group + kGroup;
      bool rare[kGroup];
      for (std::uint32_t block = group; block < end; ++block) {
        const std::uint32_t first = block * kBlock;
        const std::uint32_t absmax = largest<kBlock, kResidual>(values + first, residual.from(first).before);
        const std::uint16_t scale = Rule::scale(absmax);
        rare[block - group] = absmax >= Rule::kRare || scale == 0;
        kernels::store(out, block, scale);
      }
      for (std::uint32_t block = group; block < end; ++block) {
        const std::uint32_t first = block * kBlock;
        if (HWY_UNLIKELY(rare[block - group])) {
          nonfinite = encode_scalar(values, residual, block, count, out) || nonfinite;
          continue;
        }
        encode_codes<kResidual>(values + first, residual.from(first),
                                kernels::from_bf16(kernels::load<std::uint16_t>(out, block)),
                                codes + first * sizeof(Code));
      }
    }
    if (whole * kBlock < count) {
      nonfinite = encode_scalar(values, residual, whole, count, out) || nonfinite;
    }
    return nonfinite;
  }

  template <bool kAdd>
  static HWY_INLINE void put(VI32 codes, VF32 scale, float* values) {
    const F32 d;
    VF32 x = Lanes::level(codes) * scale;
    if constexpr (kAdd) {
      x = hn::LoadU(d, values) + x;
    }
    hn::StoreU(x, d, values);
  }

  template <bool kAdd>
  static HWY_INLINE void decode_blocks(const std::uint8_t* in, std::uint32_t count, float* values) {
    constexpr std::size_t kLine = 16;  // floats in a cache line
    const std::size_t n = lanes();
    const std::uint32_t full = count / kBlock;
    const std::uint8_t* codes = in + Core::scale_bytes(count);
    for (std::uint32_t block = 0; block < full; ++block) {
      const VF32 scale = hn::Set(F32(), kernels::from_bf16(kernels::load<std::uint16_t>(in, block)));
      const std::size_t first = std::size_t{block} * kBlock;
      float* to = values + first;
      const std::uint8_t* from = codes + first * sizeof(Code);
      for (std::size_t i = 0; i < kBlock; i += n) {
        if (kAdd && i % kLine == 0) {
          prefetch_page_ahead(to + i);
        }
        if (kAdd && i * sizeof(Code) % (kLine * sizeof(float)) == 0) {
          prefetch_page_ahead(from + i * sizeof(Code));
        }
        put<kAdd>(Lanes::load(from + i * sizeof(Code)), scale, to + i);
      }
    }
    for (std::uint32_t i = full * kBlock; i < count; ++i) {
      const float x = Core::decode_one(in, i, count);
      values[i] = kAdd ? values[i] + x : x;
    }
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
