// fp16: blocks of 256, S = 2^floor(log2(absmax)), code = x/S as IEEE half: |x/S| < 2, so nothing overflows.
#ifndef GRADWIRE_KERNELS_FP16_HPP
#define GRADWIRE_KERNELS_FP16_HPP

#include "kernels/block.hpp"

namespace gradwire::kernels {

struct Fp16Rule {
  using Code = std::uint16_t;
  static constexpr std::uint32_t kBlock = 256;

  GRADWIRE_HOST_DEVICE static std::uint16_t scale(std::uint32_t absmax_bits) { return scale_power_of_two(absmax_bits); }
  GRADWIRE_HOST_DEVICE static Code quantize(float x, float inverse) { return to_f16(x * inverse); }
  GRADWIRE_HOST_DEVICE static float level(Code code) { return from_f16(code); }
};

using Fp16 = BlockCore<Fp16Rule>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_FP16_HPP
