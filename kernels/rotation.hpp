// Rotated codecs: each block of 256 is multiplied by random signs and a Hadamard matrix, which makes any block look
// Gaussian, and is rounded to the levels of a grid that is best for a Gaussian.
// Payload of a tile: a bf16 scale for each block, in order; the codes of each block, in order; zeros up to 16 bytes. A
// short block is filled up with zeros and sent whole. With c = 256 * kBits / 8 bytes of codes a block, code i lies in
// byte i % c at bit kBits * (i / c).
// A block with NaN, Inf or an |x| of 2^119 or more, whose rotation might overflow, has the scale NaN and codes 0.
// Levels are small integers, so that the rotation of decoded levels, and the sums that give the scale, are exact in 16
// bits.
//
// A grid says what a codec is: kBits, Selected, kCells, magnitude(cell), threshold(cell).
#ifndef GRADWIRE_KERNELS_ROTATION_HPP
#define GRADWIRE_KERNELS_ROTATION_HPP

#include <cmath>  // sqrtf, in host and device code

#include "kernels/philox.hpp"
#include "kernels/run.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kRotated = 256;                // elements that are rotated together
inline constexpr std::uint32_t kRotationLimit = 0x7B000000U;  // 2^119
inline constexpr float kRotationFactor = 0.0625F;             // 1 / sqrt(256)
inline constexpr float kFixedPoint = 1024.0F;                 // quantised values are in 1/1024 of the block's spread

/// The signs of a tile, which all its blocks share: bit j of 256 is set where element j of a block changes its sign.
struct RotationSigns {
  std::uint32_t word[8];

  GRADWIRE_HOST_DEVICE explicit RotationSigns(const Tile& tile) {
    for (std::uint32_t half = 0; half < 2; ++half) {
      const Philox random = words(tile, half);
      for (std::uint32_t i = 0; i < 4; ++i) {
        word[4 * half + i] = random.word[i];
      }
    }
  }
  /// Words 4 half to 4 half + 3.
  GRADWIRE_HOST_DEVICE static Philox words(const Tile& tile, std::uint32_t half) {
    return philox({{tile.bucket, tile.step, tile.index, half}}, 0x67726164U, 0x77697265U);
  }
  [[nodiscard]] GRADWIRE_HOST_DEVICE bool flips(std::uint32_t i) const {
    return ((word[i / 32] >> (i % 32)) & 1U) != 0;
  }
};

/// Transforms 256 elements by butterflies with strides 1, 2, ..., 128. Doing it twice gives 256 times the input.
template <class T>
GRADWIRE_HOST_DEVICE inline void hadamard(T* x) {
  for (std::uint32_t stride = 1; stride < kRotated; stride *= 2) {
    for (std::uint32_t i = 0; i < kRotated; ++i) {
      if ((i & stride) == 0) {
        const T a = x[i];
        const T b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
}

template <class Grid>
struct RotatedCore {
  using Value = float;
  using Selected = typename Grid::Selected;
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

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& tile, const float* values, Residual residual, std::uint32_t count,
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

  GRADWIRE_HOST_DEVICE static bool encode_block(const RotationSigns& signs, const float* values, Residual residual,
                                                std::uint32_t block, std::uint32_t count, std::uint8_t* out) {
    const Run run = block_run(values, residual, block * kBlock, kBlock, count);
    std::uint8_t* codes = out + codes_at(block, count);
    fill_zero(codes, kCodeBytes);
    const std::uint32_t absmax = largest(run);
    if (absmax >= kRotationLimit) {
      store(out, block, kNanBf16);
      run.residual.keep(run.count);
      return true;
    }
    std::int32_t levels[kBlock];
    const std::uint16_t scale_bits = absmax < kSmallestNormal ? 0 : quantize(signs, run, absmax, codes, levels);
    store(out, block, scale_bits);
    if (scale_bits == 0) {
      fill_zero(codes, kCodeBytes);
      keep_all(run);
      return false;
    }
    if (!residual.none()) {
      hadamard(levels);
      const float scale = from_bf16(scale_bits) * kRotationFactor;
      for (std::uint32_t i = 0; i < run.count; ++i) {
        run.residual.after[i] = run.at(i) - decoded(signs, i, levels[i], scale);
      }
    }
    return false;
  }

  template <bool kAdd>
  GRADWIRE_HOST_DEVICE static void decode_block(const RotationSigns& signs, const std::uint8_t* in, std::uint32_t block,
                                                std::uint32_t count, float* values) {
    const std::uint8_t* codes = in + codes_at(block, count);
    std::int32_t levels[kBlock];
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      levels[i] = level((static_cast<std::uint32_t>(codes[i % kCodeBytes]) >> (Grid::kBits * (i / kCodeBytes))) %
                        (2 * Grid::kCells));
    }
    hadamard(levels);
    const float scale = from_bf16(load<std::uint16_t>(in, block)) * kRotationFactor;
    for (std::uint32_t i = 0, to = block * kBlock; i < kBlock && to < count; ++i, ++to) {
      const float x = decoded(signs, i, levels[i], scale);
      values[to] = kAdd ? values[to] + x : x;
    }
  }

  /// Levels in ascending order.
  GRADWIRE_HOST_DEVICE static constexpr std::int32_t level(std::uint32_t code) {
    return code < Grid::kCells ? -Grid::magnitude(Grid::kCells - 1 - code) : Grid::magnitude(code - Grid::kCells);
  }

  /// <y, level> / <level, level>
  GRADWIRE_HOST_DEVICE static float fitted_scale(std::int32_t along, std::int32_t across, float spread) {
    return static_cast<float>(along) / static_cast<float>(across) * (spread * (1.0F / kFixedPoint));
  }

 private:
  GRADWIRE_HOST_DEVICE static std::uint32_t code_of(std::int32_t q) {
    std::uint32_t cell = 0;
    for (std::uint32_t i = 0; i + 1 < Grid::kCells; ++i) {
      cell += (q < 0 ? -q : q) >= Grid::threshold(i) ? 1U : 0U;
    }
    return q < 0 ? Grid::kCells - 1 - cell : Grid::kCells + cell;
  }

  GRADWIRE_HOST_DEVICE static float decoded(const RotationSigns& signs, std::uint32_t i, std::int32_t rotated,
                                            float scale) {
    return static_cast<float>(signs.flips(i) ? -rotated : rotated) * scale;
  }

  // Writes the codes into `codes`, which must be zero, and their levels, and returns the scale that minimises the
  // squared error. The spread of the block decides the codes; the scale is then fitted to them.
  // NOLINTBEGIN(readability-non-const-parameter): both are written to
  GRADWIRE_HOST_DEVICE static std::uint16_t quantize(const RotationSigns& signs, const Run& run, std::uint32_t absmax,
                                                     std::uint8_t* codes, std::int32_t* levels) {
    // NOLINTEND(readability-non-const-parameter)
    float y[kBlock];
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      const float x = i < run.count ? run.at(i) : 0.0F;
      y[i] = signs.flips(i) ? -x : x;
    }
    hadamard(y);
    const float down = inverse_power_of_two(absmax) * kRotationFactor;
    OrderedSum squares;
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      y[i] = y[i] * down;
      squares.add(i, y[i] * y[i]);
    }
    const float spread = sqrtf(squares.total() * (1.0F / kBlock));
    const float inverse = kFixedPoint / spread;
    std::int32_t along = 0;
    std::int32_t across = 0;
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      const std::int32_t q = round_to_int(y[i] * inverse);  // |q| <= 16 kFixedPoint, apart from rounding
      const std::uint32_t code = code_of(q);
      std::uint8_t& byte = codes[i % kCodeBytes];
      byte = static_cast<std::uint8_t>(byte | code << (Grid::kBits * (i / kCodeBytes)));
      levels[i] = level(code);
      along += q * levels[i];
      across += levels[i] * levels[i];
    }
    return scale_nearest(fitted_scale(along, across, spread), absmax);
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_ROTATION_HPP
