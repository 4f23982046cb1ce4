// Rotated codecs: each block of 256 is multiplied by random signs and a Hadamard matrix, which makes it look Gaussian
// whatever it was, and goes to the levels of a grid that is the best for a Gaussian.
// Payload of a tile: a bf16 scale for each block, in order; the codes of each block, in order; zeros up to 16 bytes. A
// short block is filled up with zeros and sent whole. With c = 256 * kBits / 8 bytes of codes a block, code i lies in
// byte i % c at bit kBits * (i / c).
// A block with NaN, Inf or an |x| of 2^123 or more, whose rotation might overflow, has the scale NaN and codes 0.
//
// A grid says what a codec is: kBits, Kept, quantize(z) -> code, level(code).
#ifndef GRADWIRE_KERNELS_ROTATION_HPP
#define GRADWIRE_KERNELS_ROTATION_HPP

#include <cmath>  // sqrtf, in host and device code

#include "kernels/philox.hpp"
#include "kernels/run.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kRotated = 256;                // elements that are rotated together
inline constexpr std::uint32_t kRotationLimit = 0x7D000000U;  // 2^123

/// The signs of a tile, which all its blocks share: bit j of 256 is set where element j changes its sign.
struct RotationSigns {
  std::uint32_t word[8];

  GRADWIRE_HOST_DEVICE explicit RotationSigns(const Tile& tile) {
    for (std::uint32_t half = 0; half < 2; ++half) {
      const Philox random = philox({{tile.bucket, tile.step, tile.index, half}}, 0x67726164U, 0x77697265U);
      for (std::uint32_t i = 0; i < 4; ++i) {
        word[4 * half + i] = random.word[i];
      }
    }
  }
  [[nodiscard]] GRADWIRE_HOST_DEVICE float apply(std::uint32_t i, float x) const {
    return bits_as<float>(bits_as<std::uint32_t>(x) ^ ((word[i / 32] >> (i % 32)) << 31));
  }
};

/// 256 elements: butterflies with strides 1, 2, ..., 128, then 1/16. It is its own inverse but for rounding.
GRADWIRE_HOST_DEVICE inline void hadamard(float* x) {
  for (std::uint32_t stride = 1; stride < kRotated; stride *= 2) {
    for (std::uint32_t i = 0; i < kRotated; ++i) {
      if ((i & stride) == 0) {
        const float a = x[i];
        const float b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
  for (std::uint32_t i = 0; i < kRotated; ++i) {
    x[i] = x[i] * 0.0625F;
  }
}

template <class Grid>
struct RotatedCore {
  using Value = float;
  using Kept = typename Grid::Kept;
  static constexpr std::uint32_t kBlock = kRotated;
  static constexpr std::uint32_t kCodeBytes = kBlock * Grid::kBits / 8;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t blocks(std::uint32_t count) {
    return (count + kBlock - 1) / kBlock;
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t count) {
    return blocks(count) * (2 + kCodeBytes);
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t /*k*/, std::uint32_t count) {
    return padded(used_bytes(count));
  }
  /// Where the codes of a block begin.
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t codes_at(std::uint32_t block, std::uint32_t count) {
    return blocks(count) * 2 + block * kCodeBytes;
  }

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& tile, const float* values, float* residual, std::uint32_t count,
                                          std::uint8_t* out) {
    const RotationSigns signs(tile);
    bool nonfinite = false;
    for (std::uint32_t block = 0; block < blocks(count); ++block) {
      nonfinite = encode_block(signs, values, residual, block, count, out) || nonfinite;
    }
    fill_padding(out, used_bytes(count));
    return nonfinite;
  }

  GRADWIRE_HOST_DEVICE static void decode(const Tile& tile, const std::uint8_t* in, std::uint32_t count,
                                          float* values) {
    const RotationSigns signs(tile);
    for (std::uint32_t block = 0; block < blocks(count); ++block) {
      decode_block<false>(signs, in, block, count, values);
    }
  }

  GRADWIRE_HOST_DEVICE static void decode_add(const Tile& tile, const std::uint8_t* in, std::uint32_t count,
                                              float* values) {
    const RotationSigns signs(tile);
    for (std::uint32_t block = 0; block < blocks(count); ++block) {
      decode_block<true>(signs, in, block, count, values);
    }
  }

  GRADWIRE_HOST_DEVICE static bool encode_block(const RotationSigns& signs, const float* values, float* residual,
                                                std::uint32_t block, std::uint32_t count, std::uint8_t* out) {
    const Run run = block_run(values, residual, block * kBlock, kBlock, count);
    std::uint8_t* codes = out + codes_at(block, count);
    fill_zero(codes, kCodeBytes);
    const std::uint32_t absmax = largest(run);
    if (absmax >= kRotationLimit) {
      store(out, block, kNanBf16);
      return true;
    }
    float levels[kBlock];
    const std::uint16_t scale_bits = absmax < kSmallestNormal ? 0 : quantize(signs, run, absmax, codes, levels);
    store(out, block, scale_bits);
    if (scale_bits == 0) {
      fill_zero(codes, kCodeBytes);
      keep_all(run);
      return false;
    }
    if (residual != nullptr) {
      hadamard(levels);
      const float scale = from_bf16(scale_bits);
      for (std::uint32_t i = 0; i < run.count; ++i) {
        run.residual[i] = run.at(i) - signs.apply(i, levels[i]) * scale;
      }
    }
    return false;
  }

  template <bool kAdd>
  GRADWIRE_HOST_DEVICE static void decode_block(const RotationSigns& signs, const std::uint8_t* in, std::uint32_t block,
                                                std::uint32_t count, float* values) {
    const std::uint8_t* codes = in + codes_at(block, count);
    float levels[kBlock];
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      levels[i] = Grid::level(code_at(codes, i));
    }
    hadamard(levels);
    const float scale = from_bf16(load<std::uint16_t>(in, block));
    for (std::uint32_t i = 0, to = block * kBlock; i < kBlock && to < count; ++i, ++to) {
      const float x = signs.apply(i, levels[i]) * scale;
      values[to] = kAdd ? values[to] + x : x;
    }
  }

  GRADWIRE_HOST_DEVICE static std::uint32_t code_at(const std::uint8_t* codes, std::uint32_t i) {
    return (static_cast<std::uint32_t>(codes[i % kCodeBytes]) >> (Grid::kBits * (i / kCodeBytes))) &
           ((1U << Grid::kBits) - 1);
  }

 private:
  // The codes into `codes`, which is zero, their levels, and the scale that minimises the squared error. The spread of
  // the block says which codes; the scale is fitted to them.
  GRADWIRE_HOST_DEVICE static std::uint16_t quantize(const RotationSigns& signs, const Run& run, std::uint32_t absmax,
                                                     std::uint8_t* codes, float* levels) {
    const float down = inverse_power_of_two(absmax);
    float y[kBlock];
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      y[i] = signs.apply(i, i < run.count ? run.at(i) * down : 0.0F);
    }
    hadamard(y);
    OrderedSum squares;
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      squares.add(i, y[i] * y[i]);
    }
    const float inverse = 1.0F / sqrtf(squares.total() * (1.0F / kBlock));
    OrderedSum along;
    OrderedSum across;
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      const std::uint32_t code = Grid::quantize(y[i] * inverse);
      std::uint8_t& byte = codes[i % kCodeBytes];
      byte = static_cast<std::uint8_t>(byte | code << (Grid::kBits * (i / kCodeBytes)));
      levels[i] = Grid::level(code);
      along.add(i, y[i] * levels[i]);
      across.add(i, levels[i] * levels[i]);
    }
    return scale_nearest(along.total() / across.total(), absmax);
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_ROTATION_HPP
