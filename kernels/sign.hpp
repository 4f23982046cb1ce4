// sign: blocks of 256, S = mean |x|, one bit an element: -S where the sign bit of x is set, else S.
// Payload of a tile: a bf16 scale for each block, in order; bit i % 8 of byte i / 8 for element i; zeros up to 16
// bytes. The mean is taken of x * 2^-E, E = floor(log2(absmax)), in the order of kernels/run.hpp. S = 0 has bits 0.
#ifndef GRADWIRE_KERNELS_SIGN_HPP
#define GRADWIRE_KERNELS_SIGN_HPP

#include "kernels/run.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

struct SelectedSigns;

struct Sign {
  using Value = float;
  using Selected = SelectedSigns;
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

  GRADWIRE_HOST_DEVICE static bool encode_block(const float* values, Residual residual, std::uint32_t block,
                                                std::uint32_t count, std::uint8_t* out) {
    const Run run = block_run(values, residual, block * kBlock, kBlock, count);
    const std::uint32_t scale = block * 2;
    return encode_run(run, out + scale, out + scale_bytes(count) + block * kBlock / 8);
  }

  /// Encodes one block of any length.
  GRADWIRE_HOST_DEVICE static bool encode_run(const Run& run, std::uint8_t* scale_out, std::uint8_t* bits) {
    const std::uint32_t absmax = largest(run);
    const bool nonfinite = absmax >= kInfinity;
    const std::uint16_t scale_bits = nonfinite ? kNanBf16 : mean_scale(run, absmax);
    store(scale_out, 0, scale_bits);
    fill_zero(bits, (run.count + 7) / 8);
    if (nonfinite) {
      run.residual.keep(run.count);
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
      if (!run.residual.none()) {
        run.residual.after[i] = x - value(scale_bits, bit);
      }
    }
    return false;
  }

  GRADWIRE_HOST_DEVICE static float value(std::uint16_t scale, std::uint32_t bit) {
    return bits_as<float>((static_cast<std::uint32_t>(scale) << 16) ^ (bit << 31));
  }

  GRADWIRE_HOST_DEVICE static float decode_one(const std::uint8_t* in, std::uint32_t i, std::uint32_t count) {
    const std::uint32_t byte = in[scale_bytes(count) + i / 8];
    return value(load<std::uint16_t>(in, i / kBlock), (byte >> (i % 8)) & 1U);
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
};

/// The coder of selected values: one block, a scale and the bits.
struct SelectedSigns {
  using Value = float;
  static constexpr std::uint32_t kNonfiniteFrom = kInfinity;

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

// SIMD.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_SIGN_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_SIGN_SIMD_HPP
#undef GRADWIRE_KERNELS_SIGN_SIMD_HPP
#else
#define GRADWIRE_KERNELS_SIGN_SIMD_HPP
#endif

#include "kernels/run.hpp"

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

struct Sign : kernels::Sign {
  using Core = kernels::Sign;

  static bool encode(const Tile& /*tile*/, const float* values, Residual residual, std::uint32_t count,
                     std::uint8_t* out) {
    const bool nonfinite = residual.none() ? encode_blocks<false>(values, residual, count, out)
                                           : encode_blocks<true>(values, residual, count, out);
    fill_padding(out, used_bytes(count));
    return nonfinite;
  }
  static void decode(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<false>(in, count, values);
  }
  static void decode_add(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<true>(in, count, values);
  }

 private:
  // Between these the sum of |x| times 2^-E is the sum of |x| * 2^-E, so that one pass gives both sum and absmax.
  static constexpr std::uint32_t kSmall = (127U - 90U) << 23;
  static constexpr std::uint32_t kLarge = (127U + 110U) << 23;

  static HWY_NOINLINE bool encode_scalar(const float* values, Residual residual, std::uint32_t block,
                                         std::uint32_t count, std::uint8_t* out) {
    return Core::encode_block(values, residual, block, count, out);
  }

  // The scale, or 0 where the scalar core must encode the block.
  template <bool kResidual>
  static HWY_INLINE std::uint16_t scale(const float* values, const float* residual) {
    constexpr std::size_t kVectors = OrderedLanes::kVectors;
    const F32 d;
    OrderedLanes sum;
    VF32 most[kVectors];
    for (VF32& m : most) {
      m = hn::Zero(d);
    }
    for (std::size_t i = 0; i < kBlock; i += 32) {
      for (std::size_t j = 0; j < kVectors; ++j) {
        const VF32 a = hn::Abs(input<kResidual>(values, residual, i + j * kLanes));
        sum.add(j, a);
        most[j] = hn::BitCast(d, hn::Max(hn::BitCast(I32(), most[j]), hn::BitCast(I32(), a)));
      }
    }
    VI32 m = hn::BitCast(I32(), most[0]);
    for (std::size_t j = 1; j < kVectors; ++j) {
      m = hn::Max(m, hn::BitCast(I32(), most[j]));
    }
    const auto absmax = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), m)));
    if (absmax < kSmall || absmax >= kLarge) {
      return 0;
    }
    return scale_nearest(sum.total() * inverse_power_of_two(absmax) / static_cast<float>(kBlock), absmax);
  }

  template <bool kResidual>
  static HWY_INLINE VI32 put(const float* values, Residual residual, VF32 scale, std::size_t i) {
    const F32 d;
    const VF32 x = input<kResidual>(values, residual.before, i);
    if constexpr (kResidual) {
      hn::StoreU(x - hn::Or(scale, hn::And(x, hn::SignBit(d))), d, residual.after + i);
    }
    return hn::BitCast(I32(), x);
  }

  template <bool kResidual>
  static HWY_INLINE bool encode_blocks(const float* values, Residual residual, std::uint32_t count, std::uint8_t* out) {
    constexpr std::uint32_t kGroup = 4;  // as in kernels/block.hpp
    const std::uint32_t whole = count / kBlock;
    bool nonfinite = false;
    for (std::uint32_t group = 0; group < whole; group += kGroup) {
      const std::uint32_t end = whole - group < kGroup ? whole : group + kGroup;
      for (std::uint32_t block = group; block < end; ++block) {
        const std::uint32_t first = block * kBlock;
        kernels::store(out, block, scale<kResidual>(values + first, residual.from(first).before));
      }
      for (std::uint32_t block = group; block < end; ++block) {
        const std::uint32_t first = block * kBlock;
        const auto scale_bits = kernels::load<std::uint16_t>(out, block);
        if (HWY_UNLIKELY(scale_bits == 0)) {
          nonfinite = encode_scalar(values, residual, block, count, out) || nonfinite;
          continue;
        }
        const VF32 scale = hn::Set(F32(), kernels::from_bf16(scale_bits));
        std::uint8_t* bits = out + scale_bytes(count) + first / 8;
        const Residual left = residual.from(first);
        for (std::size_t i = 0; i < kBlock; i += 2 * kLanes) {
          const VI32 low = put<kResidual>(values + first, left, scale, i);
          const VI32 high = put<kResidual>(values + first, left, scale, i + kLanes);
          store_sign_bits(low, high, bits + i / 8);
        }
      }
    }
    if (whole * kBlock < count) {
      nonfinite = encode_scalar(values, residual, whole, count, out) || nonfinite;
    }
    return nonfinite;
  }

  template <bool kAdd>
  static HWY_INLINE void decode_blocks(const std::uint8_t* in, std::uint32_t count, float* values) {
    const F32 df;
    const U32 d;
    const VU32 sign = hn::BitCast(d, hn::SignBit(df));
    const std::uint32_t whole = count / kBlock;
    const std::uint8_t* bits = in + scale_bytes(count);
    for (std::uint32_t block = 0; block < whole; ++block) {
      const std::uint32_t scale_bits = kernels::load<std::uint16_t>(in, block);
      const VU32 scale = hn::Set(d, scale_bits << 16);
      float* to = values + std::size_t{block} * kBlock;
      for (std::uint32_t i = 0; i < kBlock; i += 32) {
        if (kAdd) {
          prefetch_page_ahead(to + i);
          prefetch_page_ahead(to + i + 16);
        }
        const VU32 word = hn::Set(d, kernels::load<std::uint32_t>(bits, (block * kBlock + i) / 32));
        for (std::uint32_t j = 0; j < 32; j += kLanes) {
          const VU32 places = hn::Set(d, 31 - j) - hn::Iota(d, 0);  // shifts the bit of each lane to the top
          VF32 x = hn::BitCast(df, hn::Xor(scale, hn::And(word << places, sign)));
          if constexpr (kAdd) {
            x = hn::LoadU(df, to + i + j) + x;
          }
          hn::StoreU(x, df, to + i + j);
        }
      }
    }
    for (std::uint32_t i = whole * kBlock; i < count; ++i) {
      const float x = Core::decode_one(in, i, count);
      values[i] = kAdd ? values[i] + x : x;
    }
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
