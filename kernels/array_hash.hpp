// A hash of an array of 32-bit elements that may be added up in any order, as threads of a device do: each element and
// its place give two words, whose sums tell arrays apart. It does not resist deliberate collisions. Hosts and devices
// compile the same text. The mixing is lowbias32 of C. Wellons' hash prospector.
#ifndef GRADWIRE_KERNELS_ARRAY_HASH_HPP
#define GRADWIRE_KERNELS_ARRAY_HASH_HPP

#include "kernels/platform.hpp"

namespace gradwire::kernels {

GRADWIRE_HOST_DEVICE inline std::uint32_t mix_bits(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  return x ^ (x >> 16);
}

/// Word `which`, 0 or 1, of the element with these bits.
GRADWIRE_HOST_DEVICE inline std::uint32_t hash_word(std::uint32_t bits, std::uint64_t place, std::uint32_t which) {
  const std::uint32_t at =
      mix_bits(static_cast<std::uint32_t>(place) + 0x9E3779B9U * (which + 1)) + static_cast<std::uint32_t>(place >> 32);
  return mix_bits(bits ^ at);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_ARRAY_HASH_HPP
