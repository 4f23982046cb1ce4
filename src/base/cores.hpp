// Which cores this process may use, and whether ranks must share them.
#pragma once

#include <cstdint>
#include <vector>

namespace gradwire {

/// Cores that the affinity mask of this thread leaves; a mask of one, as of a rank that is bound, tells nothing of the
/// others, so then all cores of the machine count.
[[nodiscard]] int cores_here() noexcept;
/// Whether so many ranks of one machine have fewer cores than ranks.
[[nodiscard]] inline bool share_cores(int ranks) noexcept { return ranks > cores_here(); }
/// Ranks on the node of `rank`; `nodes` empty: all share one (Transport::nodes).
[[nodiscard]] int ranks_here(const std::vector<std::uint32_t>& nodes, int rank, int world_size) noexcept;

}  // namespace gradwire
