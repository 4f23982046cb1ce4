// Which cores this process may use, and whether ranks must share them.
#pragma once

#include <cstdint>
#include <vector>

namespace gradwire {

/// Number of cores in the affinity mask of this thread. A mask of one core, as of a bound rank, says nothing about the
/// other ranks, so then all cores of the machine count.
[[nodiscard]] int available_cores() noexcept;
/// Whether there are more ranks on this machine than cores.
[[nodiscard]] inline bool share_cores(int ranks) noexcept { return ranks > available_cores(); }
/// Number of ranks on the node of `rank`; `nodes` empty: all share one (Transport::nodes).
[[nodiscard]] int ranks_on_node(const std::vector<std::uint32_t>& nodes, int rank, int world_size) noexcept;

}  // namespace gradwire
