// The rotated codecs as a warp runs them: a strip is one block. Values are rotated by butterflies in the order of the
// scalar core, since each addition rounds: those with strides 1, 2 and 128 are between registers of a lane, those with
// 4 to 64 between lanes. Levels are small integers, whose sums are exact in any order, so tensor cores rotate them.
#ifndef GRADWIRE_KERNELS_DEVICE_WARP_ROTATION_HPP
#define GRADWIRE_KERNELS_DEVICE_WARP_ROTATION_HPP

#include "kernels/device/warp_matrix.hpp"
#include "kernels/device/warp_sum.hpp"
#include "kernels/rotation.hpp"

namespace gradwire::kernels {

/// Replaces each register by its sum or difference with the register `stride` away.
template <int kStride>
GRADWIRE_DEVICE void butterfly_registers(float (&x)[kHeld]) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    if ((r & kStride) == 0) {
      const float a = x[r];
      const float b = x[r + kStride];
      x[r] = a + b;
      x[r + kStride] = a - b;
    }
  }
}

/// The lane of each pair whose bit `mask` is set gets a - b, the other a + b. The product is exact, so this rounds
/// once, as they do.
GRADWIRE_DEVICE void butterfly_lanes(float (&x)[kHeld], std::uint32_t mask) {
  float other[kHeld];
  simt::shuffle_xor(x, mask, other);
  const float sign = simt::lane() / mask % 2 == 0 ? 1.0F : -1.0F;
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    x[r] = fmaf(x[r], sign, other[r]);
  }
}

/// The hadamard() of kernels/rotation.hpp over a strip.
GRADWIRE_DEVICE void hadamard_strip(float (&x)[kHeld]) {
  butterfly_registers<1>(x);
  butterfly_registers<2>(x);
  GRADWIRE_UNROLL
  for (std::uint32_t mask = 1; mask < simt::kLanes; mask *= 2) {
    butterfly_lanes(x, mask);
  }
  butterfly_registers<4>(x);
}

/// The signs of the Hadamard matrix of 16 in rows 2 t, 2 t + 1 and column g (warp_matrix.hpp), as halves of 1 and -1.
/// Rows or columns that are 8 further have the same signs; where both are, the opposite ones.
GRADWIRE_DEVICE std::uint32_t hadamard_signs() {
  const std::uint32_t g = simt::lane() / 4;
  const std::uint32_t first = simt::set_bits(g & (2 * (simt::lane() % 4))) % 2;
  const std::uint32_t second = (first + g) % 2;
  return 0x3C003C00U | first << 15 | second << 31;
}
inline constexpr std::uint32_t kOpposite = 0x80008000U;

/// The hadamard() of kernels/rotation.hpp over a strip of small integers: with 16 x 16 of them as a matrix, that is the
/// Hadamard matrix of 16 on its left and on its right. In a row of the matrix bits 1, 3, 2 and 0 of the element's
/// number count up, in a column its upper bits. `levels`: each one plus `above`, columns 0 to 7 and 8 to 15. The first
/// product lies in the registers as the left operand of the second one must.
GRADWIRE_DEVICE void hadamard_levels(const HalvesRight (&levels)[2], float above, float (&x)[kHeld]) {
  const std::uint32_t signs = hadamard_signs();
  const HalvesLeft on_left{{signs, signs, signs, signs ^ kOpposite}};
  const float too_much = simt::lane() < 4 ? -16 * above : 0.0F;  // the sum of a column is in row 0
  HalvesLeft rows{};
  GRADWIRE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const FloatSums sums = multiply_add(on_left, levels[half], {{too_much, too_much, 0, 0}});
    rows.word[2 * half] = halves_of(sums.value[0], sums.value[1]);
    rows.word[2 * half + 1] = halves_of(sums.value[2], sums.value[3]);
  }
  GRADWIRE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const FloatSums sums = multiply_add(rows, {{signs, half == 0 ? signs : signs ^ kOpposite}}, {});
    GRADWIRE_UNROLL
    for (int v = 0; v < 4; ++v) {
      x[4 * (v / 2) + 2 * half + v % 2] = sums.value[v];
    }
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
      scale_bits = quantize(context, x, absmax, packed, shared);
      if (scale_bits == 0) {
        packed = 0;
      } else if (keeps) {
        float level[kHeld];
        rotated_levels(context, packed, level);
        const float scale = from_bf16(scale_bits) * kRotationFactor;
        GRADWIRE_UNROLL
        for (int r = 0; r < kHeld; ++r) {
          x[r] = fmaf(-level[r], scale, x[r]);
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
    float level[kHeld];
    rotated_levels(context, codes_of(raw), level);
    const float scale = from_bf16(raw.scale) * kRotationFactor;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = level[r] * scale;
    }
  }

  /// sum <- sum + the values.
  GRADWIRE_DEVICE static void add(const Context& context, const Raw& raw, float (&sum)[kHeld]) {
    float level[kHeld];
    rotated_levels(context, codes_of(raw), level);
    const float scale = from_bf16(raw.scale) * kRotationFactor;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      sum[r] = fmaf(level[r], scale, sum[r]);
    }
  }

 private:
  static constexpr std::uint32_t kCodeLanes = Core::kCodeBytes / 4;  // 32 or 16, with codes of 4 elements each
  static_assert(kCodeLanes == 32 || kCodeLanes == 16);
  // Sums of 16 levels are exact as halves. A rotated level has 16 bits at most and a scale 8, so that their product is
  // exact and may be a part of a fused operation.
  static_assert(16 * Grid::magnitude(Grid::kCells - 1) <= 2048);

  // Returns the bit at which the code of register r lies in its word: byte r % 4, at bit kBits * (element /
  // kCodeBytes).
  GRADWIRE_DEVICE static std::uint32_t place_of(int r) {
    const std::uint32_t quarter = simt::lane() / kCodeLanes;  // 0 where all 32 lanes have a word
    const std::uint32_t half = 128 / Core::kCodeBytes;  // number of codes of a byte between elements i and i + 128
    return 8 * static_cast<std::uint32_t>(r % 4) + Grid::kBits * (half * static_cast<std::uint32_t>(r / 4) + quarter);
  }

  GRADWIRE_DEVICE static std::uint32_t codes_of(const Raw& raw) {
    return std::uint32_t{raw.codes[0]} | std::uint32_t{raw.codes[1]} << 16;
  }

  GRADWIRE_DEVICE static void store_codes(std::uint8_t* codes, std::uint32_t packed) {
    if (simt::lane() < kCodeLanes) {
      std::uint8_t* to = codes + 4 * simt::lane();
      aligned_to(to, 4) ? simt::store4(to, packed) : store(to, 0, packed);
    }
  }

  // Computes the levels of the strip's codes, rotated back, with their signs. Lane i has word i % kCodeLanes of the
  // codes. No level is -0, since a code of 0 stands for +0 in a sum.
  GRADWIRE_DEVICE static void rotated_levels(const Context& context, std::uint32_t codes, float (&level)[kHeld]) {
    HalvesRight halves[2];
    look_up(codes_for_matrix(codes), halves);
    hadamard_levels(halves, static_cast<float>(kHalves - kLowest), level);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      level[r] = context.flip(r) ? 0.0F - level[r] : level[r];  // 0 stays +0
    }
  }

  // In a right operand a lane has the elements whose numbers have bits 6 and 5 as its own bits 1 and 0, and bits 3, 2
  // and 0 as its bits 4, 3 and 2. The result has in nibble n the code of the element with bits 1, 4 and 7 as bits 2, 1
  // and 0 of n. Elements that differ in bit 4 are in two words.
  GRADWIRE_DEVICE static std::uint32_t codes_for_matrix(std::uint32_t codes) {
    const std::uint32_t lane = simt::lane();
    const std::uint32_t upper = kCodeLanes == simt::kLanes ? lane / 2 % 2 : 0;
    const std::uint32_t word = 16 * upper + 8 * (lane % 2) + lane / 8;
    const std::uint32_t low = simt::shuffle(codes, word);
    const std::uint32_t high = simt::shuffle(codes, word + 4);
    const std::uint32_t four = simt::permute(low, high, lane / 4 % 2 != 0 ? 0x7351U : 0x6240U);
    if constexpr (Grid::kBits == 4) {
      return four;
    }
    return (four >> (2 * (lane / 2 % 2))) & 0x33333333U;
  }

  // Writes the level of each nibble, as a half. Four codes at once select among bytes, which hold levels minus the
  // lowest one; behind the byte 0x64 such a byte is the half 1024 + byte.
  GRADWIRE_DEVICE static void look_up(std::uint32_t codes, HalvesRight (&halves)[2]) {
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
      halves[half] = {{simt::permute(bytes, 0x64646464U, 0x4240U), simt::permute(bytes, 0x64646464U, 0x4341U)}};
    }
  }
  static constexpr std::int32_t kHalves = 1024;
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
  /// Returns the number of thresholds that are not above the magnitude, by a binary search.
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

  // Does the same as RotatedCore::quantize: writes the codes of the words that this lane has, and returns the scale.
  GRADWIRE_DEVICE static std::uint16_t quantize(const Context& context, const float (&x)[kHeld], std::uint32_t absmax,
                                                std::uint32_t& packed, Shared& shared) {
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
      along += magnitude * nearest;
      across += nearest * nearest;
    }
    if constexpr (kCodeLanes < simt::kLanes) {
      packed |= simt::shuffle_xor(packed, kCodeLanes);
    }
    return scale_nearest(Core::fitted_scale(simt::warp_sum(along), simt::warp_sum(across), spread), absmax);
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_ROTATION_HPP
