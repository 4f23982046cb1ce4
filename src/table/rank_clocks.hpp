// The clocks of stale synchronous parallel (Ho et al., NIPS 2013), as one owner of rows sees them. A rank's clock
// counts its finished steps; its pushes arrive before the tick that ends their step. So once every rank's clock has
// reached c, the owner holds every push that was made before clock c.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gradwire/table.hpp"

namespace gradwire::table {

class RankClocks {
 public:
  explicit RankClocks(int ranks) : clocks_(static_cast<std::size_t>(ranks)) {}

  void tick(int rank) noexcept { ++clocks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::uint64_t of(int rank) const noexcept { return clocks_[static_cast<std::size_t>(rank)]; }
  /// Every push made before this clock has arrived.
  [[nodiscard]] std::uint64_t complete() const noexcept { return *std::min_element(clocks_.begin(), clocks_.end()); }

 private:
  std::vector<std::uint64_t> clocks_;
};

/// The least complete() for a read at `clock` that may miss the last `staleness` clocks.
[[nodiscard]] constexpr std::uint64_t needed_at(std::uint64_t clock, std::uint64_t staleness) noexcept {
  return clock > staleness ? clock - staleness : 0;
}

}  // namespace gradwire::table
