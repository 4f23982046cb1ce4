// Decides which rank keeps copies of which rank's residuals ([elastic] replicate).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire::plan {

/// Returns for each rank the next rank on another node, since a node may end as a whole; on one node just the next
/// rank. `nodes` are the nodes of the ranks, or empty where nothing is known of them.
[[nodiscard]] std::vector<int> copy_keepers(std::size_t world_size, const std::vector<std::uint32_t>& nodes);

}  // namespace gradwire::plan
