// sign: blocks of 256, S = mean |x|, one bit an element: -S where the sign bit of x is set, else S.
// Payload of a tile: a bf16 scale for each block, in order; bit i % 8 of byte i / 8 for element i; zeros up to 16
// bytes. The mean is taken of x * 2^-E, E = floor(log2(absmax)), in the order of kernels/run.hpp. S = 0 has bits 0.
#ifndef GRADWIRE_KERNELS_SIGN_HPP
#define GRADWIRE_KERNELS_SIGN_HPP

#include "kernels/run.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

struct KeptSigns;

struct Sign {
  using Value = float;
  using Kept = KeptSigns;
  static constexpr std::uint32_t kBlock = 256;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t blocks(std::uint32_t count) {
    return (count + kBlock - 1) / kBlock;
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t scale_bytes(std::uint32_t count) { return blocks(count) * 2; }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t count) {
    return scale_bytes(count) + (count + 7) / 8;
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

  GRADWIRE_HOST_DEVICE static bool encode_block(const float* values, float* residual, std::uint32_t block,
                                                std::uint32_t count, std::uint8_t* out) {
    const Run run = block_run(values, residual, block * kBlock, kBlock, count);
    return encode_run(run, out + block * 2, out + scale_bytes(count) + block * kBlock / 8);
  }

  /// One block of any length.
  GRADWIRE_HOST_DEVICE static bool encode_run(const Run& run, std::uint8_t* scale_out, std::uint8_t* bits) {
    const std::uint32_t absmax = largest(run);
    const bool nonfinite = absmax >= kInfinity;
    const std::uint16_t scale_bits = nonfinite ? kNanBf16 : mean_scale(run, absmax);
    store(scale_out, 0, scale_bits);
    fill_zero(bits, (run.count + 7) / 8);
    if (nonfinite) {
      return true;
    }
    if (scale_bits == 0) {
      keep_all(run);
      return false;
    }
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const float x = run.at(i);
      const std::uint32_t bit = bits_as<std::uint32_t>(x) >> 31;
      bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | bit << (i % 8));
      if (run.residual != nullptr) {
        run.residual[i] = x - value(scale_bits, bit);
      }
    }
    return false;
  }

  GRADWIRE_HOST_DEVICE static float value(std::uint16_t scale, std::uint32_t bit) {
    return bits_as<float>((static_cast<std::uint32_t>(scale) << 16) ^ (bit << 31));
  }

 private:
  GRADWIRE_HOST_DEVICE static std::uint16_t mean_scale(const Run& run, std::uint32_t absmax) {
    if (absmax < kSmallestNormal) {
      return 0;
    }
    const float down = inverse_power_of_two(absmax);
    OrderedSum sum;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      sum.add(i, bits_as<float>(abs_bits(run.at(i))) * down);
    }
    return scale_nearest(sum.total() / static_cast<float>(run.count), absmax);
  }

  GRADWIRE_HOST_DEVICE static float decode_one(const std::uint8_t* in, std::uint32_t i, std::uint32_t count) {
    const std::uint32_t byte = in[scale_bytes(count) + i / 8];
    return value(load<std::uint16_t>(in, i / kBlock), (byte >> (i % 8)) & 1U);
  }
};

/// Kept values: one block, a scale and the bits.
struct KeptSigns {
  using Value = float;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t bytes(std::uint32_t count) { return 2 + (count + 7) / 8; }
  GRADWIRE_HOST_DEVICE static bool encode(const float* values, std::uint32_t count, std::uint8_t* out) {
    return Sign::encode_run(Run{values, nullptr, count}, out, out + 2);
  }
  GRADWIRE_HOST_DEVICE static void decode(const std::uint8_t* in, std::uint32_t count, float* values) {
    const auto scale = load<std::uint16_t>(in, 0);
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = Sign::value(scale, (static_cast<std::uint32_t>(in[2 + i / 8]) >> (i % 8)) & 1U);
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_SIGN_HPP
