#include "session/engine/host_memory.hpp"

#include <vector>

#include "base/log.hpp"
#include "base/processor_cores.hpp"
#include "base/units.hpp"
#include "memory/process_pool.hpp"
#include "policy/host_memory.hpp"

namespace gradwire::session {

void configure_host_memory(const Policy& policy, const RunnerInfo& info, bool undoable) {
  policy::configure_host_memory(policy, undoable || info.shares_process || info.nodes.empty()
                                            ? 1
                                            : ranks_on_node(info.nodes, info.rank, info.world_size));
}

void tend_host_memory(Core& core, std::chrono::steady_clock::time_point now) {
  memory::PagePool& pool = memory::page_pool();
  pool.tend(now);
  if (!pool.compaction_due()) {
    return;
  }
  const auto* background = core.parts.background();
  if (background != nullptr && background->busy()) {
    return;  // it has the lock, and uses residuals
  }
  core.on_wire([&] {
    if (core.parts.background() != nullptr && core.parts.background()->busy()) {
      return;  // late gradients use their residuals; the next step's end looks again
    }
    std::vector<memory::Block*> blocks = core.runner->held().blocks();
    core.parts.for_each([&](Part& part) { part.add_blocks(blocks); });
    const std::uint64_t given = pool.compact(blocks);
    log(LogLevel::debug,
        "compaction gave " + format_bytes(given) + " of host memory back: " + pool.statistics().to_text());
  });
}

}  // namespace gradwire::session
