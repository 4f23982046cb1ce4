// Philox4x32-10 (Salmon et al., SC 2011): 128 random bits as a pure function of a counter and a key.
#ifndef GRADWIRE_KERNELS_PHILOX_HPP
#define GRADWIRE_KERNELS_PHILOX_HPP

#include "kernels/platform.hpp"

namespace gradwire::kernels {

struct Philox {
  std::uint32_t word[4];
};

GRADWIRE_HOST_DEVICE inline Philox philox(Philox counter, std::uint32_t key0, std::uint32_t key1) {
  constexpr std::uint32_t kRounds = 10;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_PHILOX_HPP
