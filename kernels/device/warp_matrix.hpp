// Multiplies small matrices by a warp, with one instruction of tensor cores. Numbers are halves (IEEE f16, two in a
// word, the first in the low half), sums are floats. Operands lie in the registers of all lanes as PTX says for
// mma.m16n8k16; below, g = lane / 4, t = lane % 4.
#ifndef GRADWIRE_KERNELS_DEVICE_WARP_MATRIX_HPP
#define GRADWIRE_KERNELS_DEVICE_WARP_MATRIX_HPP

#include "kernels/device/simt.hpp"
#include "kernels/numeric.hpp"

namespace gradwire::kernels {

/// The matrix is 16 x 16. Word 0 has row g, columns 2 t and 2 t + 1; word 1 is 8 rows below it, words 2 and 3 are 8
/// columns to the right of these.
struct HalvesLeft {
  std::uint32_t word[4];
};
/// The matrix is 16 x 8. Word 0 has rows 2 t and 2 t + 1 of column g; word 1 is 8 rows below it.
struct HalvesRight {
  std::uint32_t word[2];
};
/// The matrix is 16 x 8. Values 0 and 1 are row g, columns 2 t and 2 t + 1; values 2 and 3 are 8 rows below them.
struct FloatSums {
  float value[4];
};

#if defined(__CUDACC__)

/// Returns left x right + more. It is exact where all sums on the way are integers below 2^24.
GRADWIRE_DEVICE FloatSums multiply_add(const HalvesLeft& left, const HalvesRight& right, const FloatSums& more) {
  FloatSums sums;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(sums.value[0]), "=f"(sums.value[1]), "=f"(sums.value[2]), "=f"(sums.value[3])
      : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]), "r"(right.word[0]),
        "r"(right.word[1]), "f"(more.value[0]), "f"(more.value[1]), "f"(more.value[2]), "f"(more.value[3]));
  return sums;
}
/// Returns the two numbers, rounded to halves.
GRADWIRE_DEVICE std::uint32_t halves_of(float first, float second) {
  std::uint32_t halves = 0;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
  return halves;
}

#else

inline FloatSums multiply_add(const HalvesLeft& left, const HalvesRight& right, const FloatSums& more) {
  struct Operands {
    HalvesLeft left;
    HalvesRight right;
  };
  const auto lanes = emulator::exchange("multiply_add", Operands{left, right});
  const auto half = [](std::uint32_t word, std::uint32_t index) {
    return from_f16(static_cast<std::uint16_t>(word >> (16 * (index % 2))));
  };
  FloatSums sums = more;
  const std::uint32_t lane = simt::lane();
  for (std::uint32_t v = 0; v < 4; ++v) {
    const std::uint32_t row = lane / 4 + 8 * (v / 2);
    const std::uint32_t column = 2 * (lane % 4) + v % 2;
    for (std::uint32_t k = 0; k < 16; ++k) {
      const Operands& of_row = lanes[4 * (row % 8) + k % 8 / 2];
      const Operands& of_column = lanes[4 * column + k % 8 / 2];
      sums.value[v] += half(of_row.left.word[row / 8 + 2 * (k / 8)], k) * half(of_column.right.word[k / 8], k);
    }
  }
  return sums;
}
inline std::uint32_t halves_of(float first, float second) {
  return to_f16(first) | std::uint32_t{to_f16(second)} << 16;
}

#endif

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_MATRIX_HPP
