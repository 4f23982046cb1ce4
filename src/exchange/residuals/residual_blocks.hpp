// Goes over the blocks of residuals in int8. Positions count from the first element of the first block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/stochastic_int8.hpp"

namespace gradwire::exchange {

inline constexpr std::uint64_t kBlockBytes = kernels::StochasticInt8::kBlockBytes;

/// Consecutive elements of a block.
struct Slots {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  [[nodiscard]] bool all() const noexcept { return count == kernels::StochasticInt8::kBlock; }
  [[nodiscard]] std::uint32_t end() const noexcept { return first + count; }
};

/// Calls body(first block, blocks, slots) for positions [first, first + count): for a block of which only some slots
/// are meant, or for several blocks of which all are.
template <class Body>
void for_each_block(std::uint64_t first, std::uint64_t count, Body body) {
  constexpr std::uint64_t kBlock = kernels::StochasticInt8::kBlock;
  const std::uint64_t end = first + count;
  for (std::uint64_t at = first; at < end;) {
    const std::uint64_t slot = at % kBlock;
    if (slot == 0 && end - at >= kBlock) {
      const std::uint64_t blocks = (end - at) / kBlock;
      body(at / kBlock, blocks, Slots{0, kBlock});
      at += blocks * kBlock;
    } else {
      const std::uint64_t some = std::min(kBlock - slot, end - at);
      body(at / kBlock, std::uint64_t{1}, Slots{static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(some)});
      at += some;
    }
  }
}

}  // namespace gradwire::exchange
