// Operations of codecs on a run of elements: x = value + residual, the largest |x|, and sums in the order that the
// format fixes: element i is added to partial i mod 32; then a tree adds the partials with strides 16, 8, 4, 2, 1.
#ifndef GRADWIRE_KERNELS_RUN_HPP
#define GRADWIRE_KERNELS_RUN_HPP

#include "kernels/numeric.hpp"
#include "kernels/residual.hpp"

namespace gradwire::kernels {

struct Run {
  const float* values;
  Residual residual;
  std::uint32_t count;

  [[nodiscard]] GRADWIRE_HOST_DEVICE float at(std::uint32_t i) const {
    return residual.none() ? values[i] : values[i] + residual.before[i];
  }
};

/// The block of `block` elements at `first`, cut off where a tile of `count` elements ends.
GRADWIRE_HOST_DEVICE inline Run block_run(const float* values, Residual residual, std::uint32_t first,
                                          std::uint32_t block, std::uint32_t count) {
  return {values + first, residual.from(first), first + block < count ? block : count - first};
}

/// The bits of the largest |x|; at least kInfinity where NaN or Inf is among them.
GRADWIRE_HOST_DEVICE inline std::uint32_t largest(const Run& run) {
  std::uint32_t absmax = 0;
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const std::uint32_t bits = abs_bits(run.at(i));
    absmax = bits > absmax ? bits : absmax;
  }
  return absmax;
}

/// Keeps all of x in the residual, for a run that is not sent.
GRADWIRE_HOST_DEVICE inline void keep_all(const Run& run) {
  for (std::uint32_t i = 0; !run.residual.none() && i < run.count; ++i) {
    run.residual.after[i] = run.at(i);
  }
}

class OrderedSum {
 public:
  GRADWIRE_HOST_DEVICE OrderedSum() {
    for (float& partial : partials_) {
      partial = 0.0F;
    }
  }
  GRADWIRE_HOST_DEVICE void add(std::uint32_t i, float x) {
    float& partial = partials_[i % kPartials];
    partial = partial + x;
  }
  /// Call it once: it overwrites the partials.
  GRADWIRE_HOST_DEVICE float total() {
    for (std::uint32_t stride = kPartials / 2; stride > 0; stride /= 2) {
      for (std::uint32_t i = 0; i < stride; ++i) {
        partials_[i] = partials_[i] + partials_[i + stride];
      }
    }
    return partials_[0];
  }

 private:
  static constexpr std::uint32_t kPartials = 32;
  float partials_[kPartials];
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_RUN_HPP

// SIMD, where the number of lanes is known when compiling: GRADWIRE_FIXED_LANES.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_RUN_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_RUN_SIMD_HPP
#undef GRADWIRE_KERNELS_RUN_SIMD_HPP
#else
#define GRADWIRE_KERNELS_RUN_SIMD_HPP
#endif

#include "kernels/simd.hpp"

#undef GRADWIRE_FIXED_LANES
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
#define GRADWIRE_FIXED_LANES 1
#else
#define GRADWIRE_FIXED_LANES 0
#endif

#if GRADWIRE_FIXED_LANES
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

inline constexpr std::size_t kLanes = hn::MaxLanes(F32());
static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);

/// Moves lane i to lane i ^ kStride.
template <std::size_t kStride>
HWY_INLINE VF32 swap_lanes(VF32 v) {
  if constexpr (kStride == 1) {
    return hn::Shuffle2301(v);
  } else if constexpr (kStride == 2) {
    return hn::Shuffle1032(v);
  } else if constexpr (kStride == 4) {
    return hn::SwapAdjacentBlocks(v);
  } else {
    return hn::ConcatLowerUpper(F32(), v, v);
  }
}

/// OrderedSum of whole vectors: vector j holds the elements from j * kLanes on.
class OrderedLanes {
 public:
  static constexpr std::size_t kVectors = 32 / kLanes;

  HWY_INLINE OrderedLanes() {
    for (VF32& partial : partials_) {
      partial = hn::Zero(F32());
    }
  }
  HWY_INLINE void add(std::size_t j, VF32 x) { partials_[j % kVectors] = partials_[j % kVectors] + x; }
  HWY_INLINE float total() {
    for (std::size_t stride = kVectors / 2; stride > 0; stride /= 2) {
      for (std::size_t j = 0; j < stride; ++j) {
        partials_[j] = partials_[j] + partials_[j + stride];
      }
    }
    VF32 v = partials_[0];
    if constexpr (kLanes >= 16) {
      v = v + swap_lanes<8>(v);
    }
    if constexpr (kLanes >= 8) {
      v = v + swap_lanes<4>(v);
    }
    v = v + swap_lanes<2>(v);
    v = v + swap_lanes<1>(v);
    return hn::GetLane(v);
  }

 private:
  VF32 partials_[kVectors];
};

/// Bit i is set where the mask is, in lane i.
template <class Mask>
HWY_INLINE std::uint64_t mask_bits(Mask mask) {
  std::uint8_t bytes[8];
  hn::StoreMaskBits(I32(), mask, bytes);
  return kLanes == 16 ? kernels::load<std::uint16_t>(bytes, 0) : bytes[0];
}

/// Bit i % 8 of byte i / 8 is set where lane i is negative, for the lanes of two vectors.
HWY_INLINE void store_sign_bits(VI32 first, VI32 second, std::uint8_t* out) {
  const I32 d;
  const auto zero = hn::Zero(d);
  std::uint8_t low[8];
  std::uint8_t high[8];
  hn::StoreMaskBits(d, hn::Lt(first, zero), low);
  hn::StoreMaskBits(d, hn::Lt(second, zero), high);
  if constexpr (kLanes == 4) {
    out[0] = static_cast<std::uint8_t>(low[0] | high[0] << 4);
  } else {
    memcpy(out, low, kLanes / 8);
    memcpy(out + kLanes / 8, high, kLanes / 8);
  }
}

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // GRADWIRE_FIXED_LANES
#endif  // toggle
