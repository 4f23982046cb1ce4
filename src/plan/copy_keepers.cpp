#include "plan/copy_keepers.hpp"

namespace gradwire::plan {

std::vector<int> copy_keepers(std::size_t world_size, const std::vector<std::uint32_t>& nodes) {
  const auto node_of = [&](std::size_t rank) { return nodes.empty() ? 0U : nodes[rank]; };
  std::vector<int> keepers;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    std::size_t keeper = (rank + 1) % world_size;
    for (std::size_t i = 1; i < world_size; ++i) {
      const std::size_t other = (rank + i) % world_size;
      if (node_of(other) != node_of(rank)) {
        keeper = other;
        break;
      }
    }
    keepers.push_back(static_cast<int>(keeper));
  }
  return keepers;
}

}  // namespace gradwire::plan
