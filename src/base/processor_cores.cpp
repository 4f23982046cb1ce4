#include "base/processor_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace gradwire {

int available_cores() noexcept {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int allowed = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
  return allowed > 1 ? allowed : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int ranks_on_node(const std::vector<std::uint32_t>& nodes, int rank, int world_size) noexcept {
  if (nodes.empty()) {
    return world_size;
  }
  return static_cast<int>(std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(rank)]));
}

}  // namespace gradwire
