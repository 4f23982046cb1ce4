// The random bits of stochastic rounding: a pure function of a key and an element's index, so they depend neither on
// threads nor on tiles.
#ifndef GRADWIRE_KERNELS_ROUNDING_BITS_HPP
#define GRADWIRE_KERNELS_ROUNDING_BITS_HPP

#include "kernels/numeric.hpp"

namespace gradwire::kernels {

/// Two random words, one key for each use of an element.
struct RoundingKey {
  std::uint32_t word[2];
};

/// Elements of a group whose random bits come from half as many hashes. A group begins at each multiple of it.
inline constexpr std::uint32_t kRoundingGroup = 32;

/// 32 random bits: a multiplicative hash with the constants of Wellons' lowbias32.
GRADWIRE_HOST_DEVICE inline std::uint32_t rounding_hash(RoundingKey key, std::uint32_t number) {
  std::uint32_t hash = number + key.word[0];
  hash = (hash ^ (hash >> 16)) * 0x7FEB352DU;
  hash = ((hash ^ (hash >> 15)) ^ key.word[1]) * 0x846CA68BU;
  return hash ^ (hash >> 16);
}

/// 16 random bits of an element; `index` is the low half of its index. The first half of a group has the low halves of
/// its hashes, and the second half the high ones.
GRADWIRE_HOST_DEVICE inline std::uint32_t rounding_bits(RoundingKey key, std::uint32_t index) {
  constexpr std::uint32_t kHalf = kRoundingGroup / 2;
  const std::uint32_t hash = rounding_hash(key, index / kRoundingGroup * kHalf + index % kHalf);
  return index % kRoundingGroup < kHalf ? hash & 0xFFFFU : hash >> 16;
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_ROUNDING_BITS_HPP
