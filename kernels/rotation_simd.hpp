// SIMD of kernels/rotation.hpp. A block's butterflies go in two sweeps: strides up to 4 vectors inside 8 registers, the
// rest across; blocks go in groups, so that one waits for its sums while the next is rotated.
// Lanes is the grid over whole vectors, with levels divided by 16, which is the factor that the rotation ends with:
//   VI32 quantize(z, VF32& level)      code - 2^(kBits - 1)
//   VF32 level(codes, i)               of the elements from i on
//   pack(256 codes as bytes, out)
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_ROTATION_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_ROTATION_SIMD_HPP
#undef GRADWIRE_KERNELS_ROTATION_SIMD_HPP
#else
#define GRADWIRE_KERNELS_ROTATION_SIMD_HPP
#endif

#include "kernels/rotation.hpp"
#include "kernels/run.hpp"

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

inline constexpr std::size_t kSweep = 8 * kLanes;  // elements in eight registers

HWY_INLINE void butterfly(VF32& a, VF32& b) {
  const VF32 difference = a - b;
  a = a + b;
  b = difference;
}

/// a + b in one lane, a - b in the other of a pair. The product with 1 or -1 is exact, so this rounds once with FMA or
/// without.
template <std::size_t kStride>
HWY_INLINE VF32 butterfly_lanes(VF32 v) {
  const U32 d;
  const VU32 upper = hn::And(hn::Iota(d, 0), hn::Set(d, kStride));
  const auto is_upper = hn::RebindMask(F32(), hn::Ne(upper, hn::Zero(d)));
  const VF32 sign = hn::IfThenElse(is_upper, hn::Set(F32(), -1.0F), hn::Set(F32(), 1.0F));
  return hn::MulAdd(v, sign, swap_lanes<kStride>(v));
}

HWY_INLINE VF32 butterfly_all_lanes(VF32 v) {
  v = butterfly_lanes<2>(butterfly_lanes<1>(v));
  if constexpr (kLanes >= 8) {
    v = butterfly_lanes<4>(v);
  }
  if constexpr (kLanes >= 16) {
    v = butterfly_lanes<8>(v);
  }
  return v;
}

HWY_INLINE void butterfly2(VF32* v) { butterfly(v[0], v[1]); }
HWY_INLINE void butterfly4(VF32* v) {
  butterfly(v[0], v[1]);
  butterfly(v[2], v[3]);
  butterfly(v[0], v[2]);
  butterfly(v[1], v[3]);
}
HWY_INLINE void butterfly8(VF32* v) {
  butterfly4(v);
  butterfly4(v + 4);
  butterfly(v[0], v[4]);
  butterfly(v[1], v[5]);
  butterfly(v[2], v[6]);
  butterfly(v[3], v[7]);
}

/// 256 elements as from.at(i), rotated but for the factor 1/16, to to.put(i, v).
template <class From, class To>
HWY_INLINE void rotate(const From& from, const To& to) {
  alignas(64) float buffer[kRotated];
  const F32 d;
  for (std::size_t i = 0; i < kRotated; i += kSweep) {
    VF32 v[8] = {from.at(i),
                 from.at(i + kLanes),
                 from.at(i + 2 * kLanes),
                 from.at(i + 3 * kLanes),
                 from.at(i + 4 * kLanes),
                 from.at(i + 5 * kLanes),
                 from.at(i + 6 * kLanes),
                 from.at(i + 7 * kLanes)};
    for (VF32& x : v) {
      x = butterfly_all_lanes(x);
    }
    butterfly8(v);
    for (std::size_t j = 0; j < 8; ++j) {
      hn::Store(v[j], d, buffer + i + j * kLanes);
    }
  }
  constexpr std::size_t kParts = kRotated / kSweep;
  for (std::size_t i = 0; i < kSweep; i += kLanes) {
    VF32 v[kParts];
    for (std::size_t j = 0; j < kParts; ++j) {
      v[j] = hn::Load(d, buffer + i + j * kSweep);
    }
    if constexpr (kParts == 2) {
      butterfly2(v);
    } else if constexpr (kParts == 4) {
      butterfly4(v);
    } else {
      butterfly8(v);
    }
    for (std::size_t j = 0; j < kParts; ++j) {
      to.put(i + j * kSweep, v[j]);
    }
  }
}

// Ends of a rotation.
struct FlipAndScale {  // encode: x * 2^-E with the signs of the tile
  const float* x;
  const float* flips;
  VF32 down;
  HWY_INLINE VF32 at(std::size_t i) const {
    return hn::Xor(hn::LoadU(F32(), x + i), hn::Load(F32(), flips + i)) * down;
  }
};
struct Sixteenth {  // encode: y
  float* y;
  HWY_INLINE void put(std::size_t i, VF32 v) const { hn::Store(v * hn::Set(F32(), 0.0625F), F32(), y + i); }
};
struct Levels {  // residual: the levels over 16
  const float* levels;
  HWY_INLINE VF32 at(std::size_t i) const { return hn::Load(F32(), levels + i); }
};
struct Left {  // residual: x - decoded
  const float* x;
  const float* flips;
  VF32 scale;
  float* residual;
  HWY_INLINE void put(std::size_t i, VF32 v) const {
    const VF32 decoded = hn::Xor(v, hn::Load(F32(), flips + i)) * scale;
    hn::StoreU(hn::LoadU(F32(), x + i) - decoded, F32(), residual + i);
  }
};
template <class Lanes>
struct Codes {  // decode
  const std::uint8_t* codes;
  HWY_INLINE VF32 at(std::size_t i) const { return Lanes::level(codes, i); }
};
template <bool kAdd>
struct Decoded {
  const float* flips;
  VF32 scale;
  float* values;
  HWY_INLINE void put(std::size_t i, VF32 v) const {
    VF32 x = hn::Xor(v, hn::Load(F32(), flips + i)) * scale;
    if constexpr (kAdd) {
      x = hn::LoadU(F32(), values + i) + x;
    }
    hn::StoreU(x, F32(), values + i);
  }
};

template <class Grid, class Lanes>
struct RotatedSimd : RotatedCore<Grid> {
  using Core = RotatedCore<Grid>;
  using Core::kBlock;

  static bool encode(const Tile& tile, const float* values, float* residual, std::uint32_t count, std::uint8_t* out) {
    const bool nonfinite = residual == nullptr ? encode_blocks<false>(tile, values, residual, count, out)
                                               : encode_blocks<true>(tile, values, residual, count, out);
    fill_padding(out, Core::used_bytes(count));
    return nonfinite;
  }
  static void decode(const Tile& tile, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<false>(tile, in, count, values);
  }
  static void decode_add(const Tile& tile, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_blocks<true>(tile, in, count, values);
  }

 private:
  static constexpr std::uint32_t kGroup = 4;
  // Below it a scale may come out as 0: left to the scalar core, as is what may overflow.
  static constexpr std::uint32_t kSmall = (127U - 100U) << 23;

  struct Signs : RotationSigns {
    alignas(64) float flips[kRotated];  // only the sign bit

    explicit Signs(const Tile& tile) : RotationSigns(tile) {
      for (std::uint32_t i = 0; i < kRotated; ++i) {
        flips[i] = bits_as<float>((word[i / 32] >> (i % 32)) << 31);
      }
    }
  };

  static HWY_NOINLINE bool encode_scalar(const RotationSigns& signs, const float* values, float* residual,
                                         std::uint32_t block, std::uint32_t count, std::uint8_t* out) {
    return Core::encode_block(signs, values, residual, block, count, out);
  }

  // y becomes the levels over 16; returns what remains of the scale without 2^E.
  static HWY_INLINE float quantize(float* y, std::uint8_t* codes) {
    constexpr std::size_t kStep = kLanes == 16 ? 64 : 32;
    const F32 d;
    OrderedLanes squares;
    for (std::size_t i = 0; i < kBlock; i += 32) {
      for (std::size_t j = 0; j < OrderedLanes::kVectors; ++j) {
        const VF32 v = hn::Load(d, y + i + j * kLanes);
        squares.add(j, v * v);
      }
    }
    const VF32 inverse = hn::Set(d, 1.0F / sqrtf(squares.total() * (1.0F / kBlock)));
    OrderedLanes along;
    OrderedLanes across;
    alignas(64) std::uint8_t bytes[kRotated];
    for (std::size_t i = 0; i < kBlock; i += kStep) {
      for (std::size_t j = 0; j < kStep / kLanes; j += 4) {
        VI32 code[4];
        for (std::size_t n = 0; n < 4; ++n) {
          float* at = y + i + (j + n) * kLanes;
          const VF32 v = hn::Load(d, at);
          VF32 level;
          code[n] = Lanes::quantize(v * inverse, level);
          along.add(j + n, v * level);
          across.add(j + n, level * level);
          hn::Store(level, d, at);
        }
        store_bytes(code[0], code[1], code[2], code[3], bytes + i + j * kLanes);
      }
    }
    Lanes::pack(bytes, codes);
    return along.total() / across.total() * 0.0625F;
  }

  template <bool kResidual>
  static HWY_INLINE std::uint32_t take(const float* values, const float* residual, float* x) {
    if constexpr (!kResidual) {
      return largest<kBlock, false>(values, nullptr);
    }
    const I32 d;
    VI32 most[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (std::size_t i = 0; i < kBlock; i += 4 * kLanes) {
      for (std::size_t j = 0; j < 4; ++j) {
        const VF32 v = input<true>(values, residual, i + j * kLanes);
        hn::Store(v, F32(), x + i + j * kLanes);
        most[j] = hn::Max(most[j], hn::BitCast(d, abs_bits(v)));
      }
    }
    const VI32 m = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
    return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, m)));
  }

  // Blocks [first, first + n) of the tile, n <= kGroup.
  template <bool kResidual>
  static HWY_INLINE bool encode_group(const Signs& signs, const float* values, float* residual, std::uint32_t first,
                                      std::uint32_t n, std::uint32_t count, std::uint8_t* out) {
    alignas(64) float sums[kGroup * kRotated];  // values + residual
    alignas(64) float y[kGroup * kRotated];
    std::uint32_t absmax[kGroup];
    const auto x_of = [&](std::uint32_t b) {
      return kResidual ? sums + b * kRotated : values + (first + b) * kRotated;
    };
    const auto usual = [&](std::uint32_t b) { return absmax[b] >= kSmall && absmax[b] < kRotationLimit; };
    for (std::uint32_t b = 0; b < n; ++b) {
      const std::uint32_t at = (first + b) * kRotated;
      absmax[b] = take<kResidual>(values + at, kResidual ? residual + at : nullptr, sums + b * kRotated);
    }
    for (std::uint32_t b = 0; b < n; ++b) {
      if (HWY_LIKELY(usual(b))) {
        rotate(FlipAndScale{x_of(b), signs.flips, hn::Set(F32(), inverse_power_of_two(absmax[b]))},
               Sixteenth{y + b * kRotated});
      }
    }
    bool nonfinite = false;
    for (std::uint32_t b = 0; b < n; ++b) {
      if (HWY_LIKELY(usual(b))) {
        const float fit = quantize(y + b * kRotated, out + Core::codes_at(first + b, count));
        kernels::store(out, first + b, scale_nearest(fit, absmax[b]));
      } else {
        nonfinite = encode_scalar(signs, values, residual, first + b, count, out) || nonfinite;
      }
    }
    for (std::uint32_t b = 0; kResidual && b < n; ++b) {
      if (HWY_LIKELY(usual(b))) {
        const float scale = kernels::from_bf16(kernels::load<std::uint16_t>(out, first + b));
        rotate(Levels{y + b * kRotated},
               Left{x_of(b), signs.flips, hn::Set(F32(), scale), residual + (first + b) * kRotated});
      }
    }
    return nonfinite;
  }

  template <bool kResidual>
  static HWY_INLINE bool encode_blocks(const Tile& tile, const float* values, float* residual, std::uint32_t count,
                                       std::uint8_t* out) {
    const Signs signs(tile);
    const std::uint32_t whole = count / kBlock;
    bool nonfinite = false;
    for (std::uint32_t first = 0; first < whole; first += kGroup) {
      const std::uint32_t n = whole - first < kGroup ? whole - first : kGroup;
      nonfinite = encode_group<kResidual>(signs, values, residual, first, n, count, out) || nonfinite;
    }
    if (whole * kBlock < count) {
      nonfinite = encode_scalar(signs, values, residual, whole, count, out) || nonfinite;
    }
    return nonfinite;
  }

  template <bool kAdd>
  static HWY_INLINE void decode_blocks(const Tile& tile, const std::uint8_t* in, std::uint32_t count, float* values) {
    const Signs signs(tile);
    const std::uint32_t whole = count / kBlock;
    for (std::uint32_t block = 0; block < whole; ++block) {
      const float scale = kernels::from_bf16(kernels::load<std::uint16_t>(in, block));
      rotate(Codes<Lanes>{in + Core::codes_at(block, count)},
             Decoded<kAdd>{signs.flips, hn::Set(F32(), scale), values + block * kRotated});
    }
    if (whole * kBlock < count) {
      Core::template decode_block<kAdd>(signs, in, whole, count, values);
    }
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
