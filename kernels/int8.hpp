// int8: blocks of 256, S = absmax/127 rounded up, code = x/S to the nearest.
#ifndef GRADWIRE_KERNELS_INT8_HPP
#define GRADWIRE_KERNELS_INT8_HPP

#include "kernels/block.hpp"

namespace gradwire::kernels {

struct Int8Rule {
  using Code = std::int8_t;
  static constexpr std::uint32_t kBlock = 256;

  GRADWIRE_HOST_DEVICE static std::uint16_t scale(std::uint32_t absmax_bits) {
    return scale_round_up(bits_as<float>(absmax_bits) / 127.0F);
  }
  GRADWIRE_HOST_DEVICE static Code quantize(float x, float inverse) {
    const std::int32_t q = round_to_int(x * inverse);
    return static_cast<Code>(q > 127 ? 127 : (q < -127 ? -127 : q));
  }
  GRADWIRE_HOST_DEVICE static float level(Code code) { return static_cast<float>(code); }
};

using Int8 = BlockCore<Int8Rule>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_INT8_HPP
