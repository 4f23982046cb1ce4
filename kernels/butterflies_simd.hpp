// The butterflies of kernels/rotation.hpp in SIMD, in two sweeps. The first does the strides that stay inside two
// vectors (32 elements for floats), the second the longer strides, between vectors.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_BUTTERFLIES_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_BUTTERFLIES_SIMD_HPP
#undef GRADWIRE_KERNELS_BUTTERFLIES_SIMD_HPP
#else
#define GRADWIRE_KERNELS_BUTTERFLIES_SIMD_HPP
#endif

#include "kernels/rotation.hpp"
#include "kernels/run.hpp"

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

inline constexpr std::size_t kNear = 32;  // elements of the first sweep over floats
inline constexpr std::size_t kFar = kRotated / kNear;
static_assert(kNear == OrderedLanes::kVectors * kLanes && kFar == 8);

inline constexpr std::size_t kLanes16 = 2 * kLanes;
inline constexpr std::size_t kNear16 = 2 * kLanes16;  // of the first sweep over levels
inline constexpr std::size_t kFar16 = kRotated / kNear16;

template <class V>
HWY_INLINE void butterfly(V& a, V& b) {
  const V difference = a - b;
  a = a + b;
  b = difference;
}

/// Strides of 1, 2, ... vectors.
template <std::size_t kCount, class V>
HWY_INLINE void butterflies(V* v) {
#pragma GCC unroll 8
  for (std::size_t stride = 1; stride < kCount; stride *= 2) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kCount; ++i) {
      if ((i & stride) == 0) {
        butterfly(v[i], v[i + stride]);
      }
    }
  }
}

/// -1 in the upper lane of each pair, 1 in the other. A table costs less than making the vector again for each block.
template <std::size_t kStride>
struct LaneSigns {
  alignas(64) float of_lane[kLanes] = {};
  constexpr LaneSigns() {
    for (std::size_t i = 0; i < kLanes; ++i) {
      of_lane[i] = (i & kStride) != 0 ? -1.0F : 1.0F;
    }
  }
};

/// Makes a + b in one lane of each pair and a - b in the other. The product with 1 or -1 is exact, so this rounds once
/// with FMA or without.
template <std::size_t kStride>
HWY_INLINE VF32 butterfly_lanes(VF32 v) {
  alignas(64) static constexpr LaneSigns<kStride> kSigns;
  return hn::MulAdd(v, hn::Load(F32(), kSigns.of_lane), swap_lanes<kStride>(v));
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

/// For levels: the stride of 8 or 16 elements, whose pairs lie in different blocks of 16 bytes.
template <std::size_t kStride>
HWY_INLINE V16 butterfly_blocks(V16 v) {
  const B16 d;
  const V16 upper = hn::And(hn::Iota(d, 0), hn::Set(d, kStride));
  const V16 sign = hn::IfThenElse(hn::Eq(upper, hn::Zero(d)), hn::Set(d, 1), hn::Set(d, -1));
  const auto words = hn::BitCast(F32(), v);
  return v * sign + hn::BitCast(d, swap_lanes<kStride / 2>(words));
}

/// For levels: all strides inside two vectors. Interleaving both vectors rotates the bits of an element's place
/// (vector, lane in its block) by one. So four butterflies between the vectors are those of the strides 4, 2, 1 and of
/// the vectors, and leave every element where it was.
HWY_INLINE void butterflies_near(V16& a, V16& b) {
  const B16 d;
  if constexpr (kLanes16 >= 16) {
    a = butterfly_blocks<8>(a);
    b = butterfly_blocks<8>(b);
  }
  if constexpr (kLanes16 >= 32) {
    a = butterfly_blocks<16>(a);
    b = butterfly_blocks<16>(b);
  }
  for (int i = 0; i < 4; ++i) {
    const V16 low = hn::InterleaveLower(d, a, b);
    const V16 high = hn::InterleaveUpper(d, a, b);
    a = low + high;
    b = low - high;
  }
}

/// The first sweep: reads 256 elements by from.at(i) and writes to `y`.
template <class From>
HWY_INLINE void rotate_near(From& from, float* y) {
  constexpr std::size_t kVectors = kNear / kLanes;
  for (std::size_t i = 0; i < kRotated; i += kNear) {
    VF32 v[kVectors];
    for (std::size_t j = 0; j < kVectors; ++j) {
      v[j] = butterfly_all_lanes(from.at(i + j * kLanes));
    }
    butterflies<kVectors>(v);
    for (std::size_t j = 0; j < kVectors; ++j) {
      hn::Store(v[j], F32(), y + i + j * kLanes);
    }
  }
}

/// The second sweep, which ends with multiplying by `factor` and adding up the squares.
HWY_INLINE void rotate_far(float* y, VF32 factor, OrderedLanes& squares) {
  for (std::size_t i = 0; i < kNear; i += kLanes) {
    VF32 v[kFar];
    for (std::size_t t = 0; t < kFar; ++t) {
      v[t] = hn::Load(F32(), y + i + t * kNear);
    }
    butterflies<kFar>(v);
    VF32 sum = hn::Zero(F32());
    for (std::size_t t = 0; t < kFar; ++t) {
      v[t] = v[t] * factor;
      hn::Store(v[t], F32(), y + i + t * kNear);
      sum = sum + v[t] * v[t];
    }
    squares.add(i / kLanes, sum);
  }
}

HWY_INLINE V16 load_levels(const std::int8_t* levels) { return hn::PromoteTo(B16(), hn::Load(hn::Half<B8>(), levels)); }
HWY_INLINE V16 load_levels(const std::int16_t* levels) { return hn::Load(B16(), levels); }

/// Rotates levels, without the factor, and gives them to to.put(i, the levels from i on). Sums are exact, so the levels
/// of each kNear16 may lie in any order; they come out in the same one.
template <class Level, class To>
HWY_INLINE void rotate_levels(const Level* levels, const To& to) {
  const B16 d;
  alignas(64) std::int16_t y[kRotated];
  for (std::size_t i = 0; i < kRotated; i += kNear16) {
    V16 a = load_levels(levels + i);
    V16 b = load_levels(levels + i + kLanes16);
    butterflies_near(a, b);
    hn::Store(a, d, y + i);
    hn::Store(b, d, y + i + kLanes16);
  }
  for (std::size_t i = 0; i < kNear16; i += kLanes16) {
    V16 v[kFar16];
    for (std::size_t t = 0; t < kFar16; ++t) {
      v[t] = hn::Load(d, y + i + t * kNear16);
    }
    butterflies<kFar16>(v);
    for (std::size_t t = 0; t < kFar16; ++t) {
      to.put(i + t * kNear16, v[t]);
    }
  }
}

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
