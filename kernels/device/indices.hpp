// How a thread block reads the indices of the elements that topk selected (kernels/index_code.hpp). Nothing is stored:
// each warp computes by itself which indices the bits of its words stand for.
#ifndef GRADWIRE_KERNELS_DEVICE_INDICES_HPP
#define GRADWIRE_KERNELS_DEVICE_INDICES_HPP

#include "kernels/device/simt.hpp"
#include "kernels/index_code.hpp"

namespace gradwire::kernels {

/// Prefetches a tile's payload, so that later reads do not each wait for memory. Called by a whole warp.
GRADWIRE_DEVICE void prefetch_selected(const std::uint8_t* payload, std::uint32_t bytes) {
  constexpr std::uint32_t kSector = 32;
  for (std::uint32_t at = kSector * simt::lane(); at < bytes; at += kSector * simt::kLanes) {
    simt::prefetch(payload + at);
  }
}

/// Low bits of the j-th index, read as aligned words, to which the tile is padded.
GRADWIRE_DEVICE std::uint32_t low_bits(const std::uint8_t* in, const IndexCode& code, std::uint32_t j) {
  if (code.low == 0) {
    return 0;
  }
  const std::uint32_t bit = code.run + code.low * j;
  const std::uint8_t* at = in + bit / 32 * 4;
  std::uint32_t bits = simt::load4(at) >> (bit % 32);
  if (bit % 32 + code.low > 32) {
    bits |= simt::load4(at + 4) << (32 - bit % 32);
  }
  return bits & ((1U << code.low) - 1);
}

/// Calls body(j, index) for each index of a tile that is in order and inside the tile. Warps take words of the run in
/// turn, lanes take bits of a word, and each warp counts the bits before its words itself. Returns to each thread
/// whether the indices that it saw were good; where any were not, body may get an index twice. There is no barrier.
template <class Body>
GRADWIRE_DEVICE bool for_indices(const std::uint8_t* in, std::uint32_t count, const IndexCode& code, const Body& body) {
  const std::uint32_t words = (code.run + 31) / 32;
  const std::uint32_t lane = simt::lane();
  if (simt::warp() >= words) {  // the other warps read all words
    return true;
  }
  bool good = true;
  std::uint32_t before = 0;   // number of bits in the words before `first`
  std::uint32_t carried = 0;  // the last word before `first`
  GRADWIRE_ROLLED
  for (std::uint32_t first = 0; first < words; first += simt::kLanes) {
    std::uint32_t own = 0;
    if (first + lane < words) {
      own = run_bits(simt::load4(in + 4 * (first + lane)), code, first + lane);
    }
    const std::uint32_t sum = before + simt::sum_to(simt::set_bits(own));
    GRADWIRE_ROLLED
    for (std::uint32_t w = simt::warp(); w < simt::kLanes && first + w < words; w += simt::kWarps) {
      const std::uint32_t word = simt::shuffle(own, w);
      const std::uint32_t last = simt::shuffle(own, w - 1);
      const std::uint32_t j = simt::shuffle(sum, w) - simt::set_bits(word >> lane);
      if (((word >> lane) & 1U) == 0) {
        continue;
      }
      if (j >= code.selected) {
        good = false;
        continue;
      }
      const std::uint32_t high = 32 * (first + w) + lane - code.spread * j;
      const std::uint32_t low = low_bits(in, code, j);
      const std::uint32_t index = high << code.low | low;
      // High bits never fall. Outside a bitmap they equal those of the previous index where the previous bit is set.
      const std::uint32_t neighbour = lane != 0 ? word >> (lane - 1) : (w != 0 ? last : carried) >> 31;
      const bool repeats = code.spread != 0 && (neighbour & 1U) != 0 && low_bits(in, code, j - 1) >= low;
      if (repeats || index >= count) {
        good = false;
        continue;
      }
      body(j, index);
    }
    before = simt::shuffle(sum, simt::kLanes - 1);
    carried = simt::shuffle(own, simt::kLanes - 1);
  }
  return good && before == code.selected && spare_bits_zero(in, code);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_INDICES_HPP
