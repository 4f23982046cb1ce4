// SIMD of kernels/rotation.hpp. A block's butterflies go in two sweeps: strides below 32 inside 32 elements, then the
// others over 8 vectors that lie 32 apart, which are also the elements of the same partial sums. Blocks go in groups,
// so that one waits for its sums while the next is rotated. Lanes is the grid over whole vectors, with levels divided
// by 16, which is the factor that the rotation ends with:
//   VI32 quantize(z, VF32& level)      in the low bits code - 2^(kBits - 1)
//   store(codes of 8 vectors that lie 32 apart, out)
//   VF32 level(in, i)                  of the elements from i on
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

inline constexpr std::size_t kNear = 32;  // elements of the first sweep
inline constexpr std::size_t kFar = kRotated / kNear;
static_assert(kNear == OrderedLanes::kVectors * kLanes && kFar == 8);

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

/// The first sweep: 256 elements as from.at(i) to `y`.
template <class From>
HWY_INLINE void rotate_near(const From& from, float* y) {
  constexpr std::size_t kVectors = kNear / kLanes;
  for (std::size_t i = 0; i < kRotated; i += kNear) {
    VF32 v[kVectors];
    for (std::size_t j = 0; j < kVectors; ++j) {
      v[j] = butterfly_all_lanes(from.at(i + j * kLanes));
    }
    if constexpr (kVectors == 2) {
      butterfly(v[0], v[1]);
    } else if constexpr (kVectors == 4) {
      butterfly4(v);
    } else {
      butterfly8(v);
    }
    for (std::size_t j = 0; j < kVectors; ++j) {
      hn::Store(v[j], F32(), y + i + j * kLanes);
    }
  }
}

/// The second: to to.put(i, v), v[t] being the elements from i + 32 t on, rotated but for the factor 1/16.
template <class To>
HWY_INLINE void rotate_far(const float* y, const To& to) {
  for (std::size_t i = 0; i < kNear; i += kLanes) {
    VF32 v[kFar];
    for (std::size_t t = 0; t < kFar; ++t) {
      v[t] = hn::Load(F32(), y + i + t * kNear);
    }
    butterfly8(v);
    to.put(i, v);
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
struct Spread {  // encode: 16 y, and the squares
  float* y;
  OrderedLanes& squares;
  HWY_INLINE void put(std::size_t i, const VF32* v) const {
    VF32 sum = hn::Zero(F32());
    for (std::size_t t = 0; t < kFar; ++t) {
      hn::Store(v[t], F32(), y + i + t * kNear);
      sum = sum + v[t] * v[t];
    }
    squares.add(i / kLanes, sum);
  }
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
  HWY_INLINE void put(std::size_t first, const VF32* v) const {
    for (std::size_t t = 0; t < kFar; ++t) {
      const std::size_t i = first + t * kNear;
      const VF32 decoded = hn::Xor(v[t], hn::Load(F32(), flips + i)) * scale;
      hn::StoreU(hn::LoadU(F32(), x + i) - decoded, F32(), residual + i);
    }
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
  HWY_INLINE void put(std::size_t first, const VF32* v) const {
    for (std::size_t t = 0; t < kFar; ++t) {
      const std::size_t i = first + t * kNear;
      VF32 x = hn::Xor(v[t], hn::Load(F32(), flips + i)) * scale;
      if constexpr (kAdd) {
        x = hn::LoadU(F32(), values + i) + x;
      }
      hn::StoreU(x, F32(), values + i);
    }
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

    HWY_INLINE explicit Signs(const Tile& tile) : RotationSigns(tile) {
      const U32 d;
      const VU32 sign = hn::BitCast(d, hn::SignBit(F32()));
      for (std::uint32_t i = 0; i < kRotated; i += kNear) {
        const VU32 bits = hn::Set(d, word[i / 32]);
        for (std::uint32_t j = 0; j < kNear; j += kLanes) {
          const VU32 top = bits << (hn::Set(d, 31 - j) - hn::Iota(d, 0));
          hn::Store(hn::BitCast(F32(), hn::And(top, sign)), F32(), flips + i + j);
        }
      }
    }
  };

  static HWY_NOINLINE bool encode_scalar(const RotationSigns& signs, const float* values, float* residual,
                                         std::uint32_t block, std::uint32_t count, std::uint8_t* out) {
    return Core::encode_block(signs, values, residual, block, count, out);
  }

  // y becomes the levels over 16; `along` and `across`, their products with it and themselves, say which scale fits.
  static HWY_INLINE void quantize(float* y, float inverse_spread, std::uint8_t* codes, OrderedLanes& along,
                                  OrderedLanes& across) {
    const F32 d;
    const VF32 inverse = hn::Set(d, inverse_spread);
    for (std::size_t i = 0; i < kNear; i += 2 * kLanes) {
      alignas(64) std::int32_t code[2][kFar * kLanes];
      VF32 dot[2] = {hn::Zero(d), hn::Zero(d)};
      VF32 norm[2] = {hn::Zero(d), hn::Zero(d)};
#pragma GCC unroll 1  // the registers do not suffice for more
      for (std::size_t t = 0; t < kFar; ++t) {
        for (std::size_t j = 0; j < 2; ++j) {
          float* at = y + i + j * kLanes + t * kNear;
          const VF32 v = hn::Load(d, at);
          VF32 level;
          hn::Store(Lanes::quantize(v * inverse, level), I32(), code[j] + t * kLanes);
          dot[j] = dot[j] + v * level;
          norm[j] = norm[j] + level * level;
          hn::Store(level, d, at);
        }
      }
      for (std::size_t j = 0; j < 2; ++j) {
        along.add(i / kLanes + j, dot[j]);
        across.add(i / kLanes + j, norm[j]);
        Lanes::store(code[j], codes + i + j * kLanes);
      }
    }
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
        const std::size_t at = i + j * kLanes;
        if (at % 16 == 0) {  // a cache line
          prefetch_page_ahead(values + at);
          prefetch_page_ahead(residual + at);
        }
        const VF32 v = input<true>(values, residual, at);
        hn::Store(v, F32(), x + at);
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
    alignas(64) float sums[kGroup * kRotated + 80];  // values + residual
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
        const FlipAndScale from{x_of(b), signs.flips, hn::Set(F32(), inverse_power_of_two(absmax[b]))};
        rotate_near(from, y + b * kRotated);
      }
    }
    OrderedLanes squares[kGroup];
    for (std::uint32_t b = 0; b < n; ++b) {
      if (HWY_LIKELY(usual(b))) {
        const Spread to{y + b * kRotated, squares[b]};
        rotate_far(y + b * kRotated, to);
      }
    }
    float inverse_spread[kGroup];  // over 16, as y is 16 times too large: powers of two change no rounding
    for (std::uint32_t b = 0; b < n; ++b) {
      inverse_spread[b] = 1.0F / sqrtf(squares[b].total() * (1.0F / kBlock));
    }
    OrderedLanes along[kGroup];
    OrderedLanes across[kGroup];
    for (std::uint32_t b = 0; b < n; ++b) {
      if (HWY_LIKELY(usual(b))) {
        quantize(y + b * kRotated, inverse_spread[b], out + Core::codes_at(first + b, count), along[b], across[b]);
      }
    }
    bool nonfinite = false;
    for (std::uint32_t b = 0; b < n; ++b) {
      if (HWY_LIKELY(usual(b))) {
        const float scale = along[b].total() / across[b].total() * 0x1p-8F;
        kernels::store(out, first + b, scale_nearest(scale, absmax[b]));
      } else {
        nonfinite = encode_scalar(signs, values, residual, first + b, count, out) || nonfinite;
      }
    }
    if constexpr (kResidual) {
      for (std::uint32_t b = 0; b < n; ++b) {
        if (HWY_LIKELY(usual(b))) {
          rotate_near(Levels{y + b * kRotated}, y + b * kRotated);
        }
      }
      for (std::uint32_t b = 0; b < n; ++b) {
        if (HWY_LIKELY(usual(b))) {
          const float scale = kernels::from_bf16(kernels::load<std::uint16_t>(out, first + b));
          const Left to{x_of(b), signs.flips, hn::Set(F32(), scale), residual + (first + b) * kRotated};
          rotate_far(y + b * kRotated, to);
        }
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
    alignas(64) float y[kGroup * kRotated];
    for (std::uint32_t first = 0; first < whole; first += kGroup) {
      const std::uint32_t end = whole - first < kGroup ? whole : first + kGroup;
      for (std::uint32_t block = first; block < end; ++block) {
        for (std::uint32_t i = 0; kAdd && i < kRotated; i += 16) {
          prefetch_page_ahead(values + block * kRotated + i);
        }
        rotate_near(Codes<Lanes>{in + Core::codes_at(block, count)}, y + (block - first) * kRotated);
      }
      for (std::uint32_t block = first; block < end; ++block) {
        const float scale = kernels::from_bf16(kernels::load<std::uint16_t>(in, block));
        const Decoded<kAdd> to{signs.flips, hn::Set(F32(), scale), values + block * kRotated};
        rotate_far(y + (block - first) * kRotated, to);
      }
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
