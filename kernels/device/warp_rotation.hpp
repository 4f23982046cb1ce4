// The rotated codecs as a warp runs them: a strip is one block. Butterflies with strides 1, 2 and 128 are between
// registers of a lane, those with 4 to 64 between lanes, in the order of the scalar core.
#ifndef GRADWIRE_KERNELS_DEVICE_WARP_ROTATION_HPP
#define GRADWIRE_KERNELS_DEVICE_WARP_ROTATION_HPP

#include "kernels/device/warp_sum.hpp"
#include "kernels/rotation.hpp"

namespace gradwire::kernels {

/// Replaces each register by its sum or difference with the register `stride` away.
template <int kStride, class T, int kCount>
GRADWIRE_DEVICE void butterfly_registers(T (&x)[kCount]) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kCount; ++r) {
    if ((r & kStride) == 0) {
      const T a = x[r];
      const T b = x[r + kStride];
      x[r] = a + b;
      x[r + kStride] = a - b;
    }
  }
}

// Multiplies x by 1 or -1, which is exact, and adds: this rounds once, as a + b and a - b do.
GRADWIRE_DEVICE float add_signed(float x, std::int32_t sign, float other) {
  return fmaf(x, static_cast<float>(sign), other);
}
GRADWIRE_DEVICE std::int32_t add_signed(std::int32_t x, std::int32_t sign, std::int32_t other) {
  return x * sign + other;
}

/// The lane of each pair whose bit `mask` is set gets a - b, the other a + b.
template <class T, int kCount>
GRADWIRE_DEVICE void butterfly_lanes(T (&x)[kCount], std::uint32_t mask) {
  T other[kCount];
  simt::shuffle_xor(x, mask, other);
  const std::int32_t sign = 1 - 2 * static_cast<std::int32_t>(simt::lane() / mask % 2);
  GRADWIRE_UNROLL
  for (int r = 0; r < kCount; ++r) {
    x[r] = add_signed(x[r], sign, other[r]);
  }
}

template <class T, int kCount>
GRADWIRE_DEVICE void butterfly_all_lanes(T (&x)[kCount]) {
  GRADWIRE_UNROLL
  for (std::uint32_t mask = 1; mask < simt::kLanes; mask *= 2) {
    butterfly_lanes(x, mask);
  }
}

/// The hadamard() of kernels/rotation.hpp over a strip.
GRADWIRE_DEVICE void hadamard_strip(float (&x)[kHeld]) {
  butterfly_registers<1>(x);
  butterfly_registers<2>(x);
  butterfly_all_lanes(x);
  butterfly_registers<4>(x);
}

/// The same for levels. They are small integers, so two fit into one word, both[c] = x[c] + 2^16 x[c + 4], and sums of
/// such words are exact.
GRADWIRE_DEVICE void hadamard_levels(std::int32_t (&both)[kHeld / 2], std::int32_t (&x)[kHeld]) {
  butterfly_registers<1>(both);
  butterfly_registers<2>(both);
  butterfly_all_lanes(both);
  GRADWIRE_UNROLL
  for (int c = 0; c < kHeld / 2; ++c) {
    const std::int32_t low = static_cast<std::int16_t>(both[c] & 0xFFFF);
    const std::int32_t high = (both[c] - low) >> 16;
    x[c] = low + high;
    x[c + 4] = low - high;
  }
}

template <class Grid>
struct WarpRotated {
  using Core = RotatedCore<Grid>;
  using Value = float;
  using Shared = WarpSums;
  static constexpr int kAhead = 1;
  static constexpr int kEncodingBlocks = 4;
  static constexpr int kSummingBlocks = 4;
  static constexpr int kWindowBlocks = 3;
  /// The two words of the tile's 256 sign bits that this lane's elements need, shifted to its first element.
  struct Context {
    std::uint32_t flips[2];
    [[nodiscard]] GRADWIRE_DEVICE bool flip(int r) const { return ((flips[r / 4] >> (r % 4)) & 1U) != 0; }
  };
  struct Raw {
    std::uint16_t codes[2];  // the low half first
    std::uint16_t scale;
  };

  /// Even lanes compute the first half of the words, odd ones the second; neighbours then exchange them.
  GRADWIRE_DEVICE static Context context(const Tile& tile) {
    const std::uint32_t lane = simt::lane();
    const bool odd = lane % 2 != 0;
    const Philox words = RotationSigns::words(tile, lane % 2);
    const std::uint32_t group = lane / 8;
    const std::uint32_t pair = group % 2 == 0 ? words.word[0] : words.word[1];
    const std::uint32_t own = group < 2 ? pair : (group % 2 == 0 ? words.word[2] : words.word[3]);
    const std::uint32_t other = simt::shuffle_xor(own, 1);
    const std::uint32_t first = 4 * (lane % 8);
    return {{(odd ? other : own) >> first, (odd ? own : other) >> first}};
  }

  GRADWIRE_DEVICE static std::uint32_t encode(const Context& context, std::uint32_t strip, float (&x)[kHeld],
                                              std::uint32_t count, std::uint8_t* out, Shared& shared, bool keeps) {
    std::uint32_t absmax = 0;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::uint32_t bits = abs_bits(x[r]);
      absmax = bits > absmax ? bits : absmax;
    }
    absmax = simt::warp_max(absmax);
    const bool nonfinite = absmax >= kRotationLimit;
    std::uint16_t scale_bits = nonfinite ? kNanBf16 : std::uint16_t{0};
    std::uint32_t packed = 0;
    if (!nonfinite && absmax >= kSmallestNormal) {
      std::int32_t levels[kHeld];
      scale_bits = quantize(context, x, absmax, packed, levels, shared);
      if (scale_bits == 0) {
        packed = 0;
      } else if (keeps) {
        std::int32_t both[kHeld / 2];
        GRADWIRE_UNROLL
        for (int c = 0; c < kHeld / 2; ++c) {
          both[c] = levels[c] + levels[c + 4] * 65536;
        }
        hadamard_levels(both, levels);
        const float scale = from_bf16(scale_bits) * kRotationFactor;
        GRADWIRE_UNROLL
        for (int r = 0; r < kHeld; ++r) {
          x[r] = x[r] - static_cast<float>(context.flip(r) ? -levels[r] : levels[r]) * scale;
        }
      }
    }
    if (simt::lane() == 0) {
      simt::store2(out + strip * 2, scale_bits);
    }
    store_codes(out + Core::codes_at(strip, count), packed);
    return nonfinite ? 0xFFU : 0U;
  }

  GRADWIRE_DEVICE static Raw fetch(std::uint32_t strip, std::uint32_t count, const std::uint8_t* in) {
    const std::uint8_t* codes = in + Core::codes_at(strip, count) + 4 * (simt::lane() % kCodeLanes);
    // Codes of a tile with an odd number of strips begin in the middle of a word. The load is always two halves: from a
    // choice between both ways nvcc makes one load of 4 bytes, which faults there.
    return {{simt::load2(codes), simt::load2(codes + 2)}, simt::load2(in + strip * 2)};
  }

  GRADWIRE_DEVICE static void expand(const Context& context, const Raw& raw, float (&x)[kHeld]) {
    const std::uint32_t codes = std::uint32_t{raw.codes[0]} | std::uint32_t{raw.codes[1]} << 16;
    std::int32_t both[kHeld / 2];
    std::int32_t levels[kHeld];
    look_up(codes >> place_of(0), both);
    hadamard_levels(both, levels);
    const float scale = from_bf16(raw.scale) * kRotationFactor;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = static_cast<float>(context.flip(r) ? -levels[r] : levels[r]) * scale;
    }
  }

 private:
  static constexpr std::uint32_t kCodeLanes = Core::kCodeBytes / 4;  // 32 or 16, with codes of 4 elements each
  static_assert(kCodeLanes == 32 || kCodeLanes == 16);

  // The bit at which the code of register r lies in its word: byte r % 4, at bit kBits * (element / kCodeBytes).
  GRADWIRE_DEVICE static std::uint32_t place_of(int r) {
    const std::uint32_t quarter = simt::lane() / kCodeLanes;  // 0 where all 32 lanes have a word
    const std::uint32_t half = 128 / Core::kCodeBytes;  // number of codes of a byte between elements i and i + 128
    return 8 * static_cast<std::uint32_t>(r % 4) + Grid::kBits * (half * static_cast<std::uint32_t>(r / 4) + quarter);
  }

  GRADWIRE_DEVICE static void store_codes(std::uint8_t* codes, std::uint32_t packed) {
    if (kCodeLanes < simt::kLanes) {
      packed |= simt::shuffle_xor(packed, kCodeLanes % simt::kLanes);
    }
    if (simt::lane() < kCodeLanes) {
      std::uint8_t* to = codes + 4 * simt::lane();
      aligned_to(to, 4) ? simt::store4(to, packed) : store(to, 0, packed);
    }
  }

  // Computes Core::level of codes c and c + 4, as low + 2^16 high. Byte c of `codes` has the first in its low half, the
  // second in its high half. Four codes at once select among bytes, which hold levels minus the lowest one.
  GRADWIRE_DEVICE static void look_up(std::uint32_t codes, std::int32_t (&both)[kHeld / 2]) {
    constexpr std::uint32_t kMost = 2 * Grid::kCells - 1;
    GRADWIRE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t four = codes >> (16 * half);
      const std::uint32_t places = four & (0x1111U * (kMost % 8));
      std::uint32_t bytes = simt::permute(kAboveLowest.word[0], kAboveLowest.word[1], places);
      if (kMost > 8) {
        const std::uint32_t others = simt::permute(kAboveLowest.word[2], kAboveLowest.word[3], places);
        const std::uint32_t from_others = simt::permute(0xFF00U, 0, (four >> 3) & 0x1111U);
        bytes = (others & from_others) | (bytes & ~from_others);
      }
      both[2 * half] = static_cast<std::int32_t>(simt::permute(bytes, 0, 0x4140U)) + kLowest * 65537;
      both[2 * half + 1] = static_cast<std::int32_t>(simt::permute(bytes, 0, 0x4342U)) + kLowest * 65537;
    }
  }
  struct Levels {
    std::uint32_t word[4];
  };
  static constexpr std::int32_t kLowest = -Grid::magnitude(Grid::kCells - 1);
  static constexpr Levels above_lowest() {
    Levels all{};
    for (std::uint32_t code = 0; code < 2 * Grid::kCells; ++code) {
      all.word[code / 4] |= static_cast<std::uint32_t>(Core::level(code) - kLowest) << (8 * (code % 4));
    }
    return all;
  }
  static constexpr Levels kAboveLowest = above_lowest();

  GRADWIRE_DEVICE static std::int32_t magnitude_of(std::uint32_t cell) {
    return static_cast<std::int32_t>(simt::byte_of(kMagnitudes[0], kMagnitudes[1], cell));
  }
  /// The number of thresholds that are not above the magnitude, by a binary search.
  GRADWIRE_DEVICE static std::uint32_t cell_of(std::int32_t magnitude) {
    std::int32_t threshold[Grid::kCells - 1];
    GRADWIRE_UNROLL
    for (std::uint32_t i = 0; i + 1 < Grid::kCells; ++i) {
      threshold[i] = Grid::threshold(i);
    }
    std::uint32_t cell = 0;
    GRADWIRE_UNROLL
    for (std::uint32_t half = Grid::kCells / 2; half != 0; half /= 2) {
      const bool above = magnitude >= threshold[half - 1];
      cell += above ? half : 0U;
      GRADWIRE_UNROLL
      for (std::uint32_t i = 0; i + 1 < half; ++i) {
        threshold[i] = above ? threshold[half + i] : threshold[i];
      }
    }
    return cell;
  }
  struct Magnitudes {
    std::uint32_t word[2];
    GRADWIRE_HOST_DEVICE constexpr std::uint32_t operator[](int i) const { return word[i]; }
  };
  static constexpr Magnitudes magnitudes() {
    Magnitudes all{};
    for (std::uint32_t cell = 0; cell < Grid::kCells; ++cell) {
      all.word[cell / 4] |= static_cast<std::uint32_t>(Grid::magnitude(cell)) << (8 * (cell % 4));
    }
    return all;
  }
  static constexpr Magnitudes kMagnitudes = magnitudes();

  // The same as RotatedCore::quantize: writes codes at their places in `packed`, and their levels, and returns the
  // scale.
  GRADWIRE_DEVICE static std::uint16_t quantize(const Context& context, const float (&x)[kHeld], std::uint32_t absmax,
                                                std::uint32_t& packed, std::int32_t (&levels)[kHeld], Shared& shared) {
    float y[kHeld];
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      y[r] = context.flip(r) ? -x[r] : x[r];
    }
    hadamard_strip(y);
    const float down = inverse_power_of_two(absmax) * kRotationFactor;
    float squares[kHeld];
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      y[r] = y[r] * down;
      squares[r] = y[r] * y[r];
    }
    const float spread = sqrtf(ordered_sum(squares, shared) * (1.0F / kRotated));
    const float inverse = kFixedPoint / spread;
    std::int32_t along = 0;
    std::int32_t across = 0;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::int32_t q = round_to_int(y[r] * inverse);
      const std::int32_t magnitude = q < 0 ? -q : q;
      const std::uint32_t cell = cell_of(magnitude);
      const std::int32_t nearest = magnitude_of(cell);
      const std::uint32_t code = q < 0 ? Grid::kCells - 1 - cell : Grid::kCells + cell;
      packed |= code << place_of(r);
      levels[r] = q < 0 ? -nearest : nearest;
      along += q * levels[r];
      across += nearest * nearest;
    }
    return scale_nearest(Core::fitted_scale(simt::warp_sum(along), simt::warp_sum(across), spread), absmax);
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_ROTATION_HPP
