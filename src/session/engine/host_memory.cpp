#include "session/engine/host_memory.hpp"

#include "base/log.hpp"
#include "base/processor_cores.hpp"
#include "base/units.hpp"
#include "memory/process_pool.hpp"

namespace gradwire::session {

void configure_host_memory(const Policy& policy, const RunnerInfo& info, bool undoable) {
  const Policy::Memory& memory = policy.memory;
  using Given = Policy::Memory::HugePages;
  using memory::HugePages;
  memory::PagePoolOptions options;
  options.huge_pages = memory.huge_pages == Given::madvise     ? HugePages::madvise
                       : memory.huge_pages == Given::hugetlbfs ? HugePages::hugetlbfs
                                                               : HugePages::off;
  options.protection = {.not_dumped = policy.security.no_dump, .locked = policy.security.lock_memory};
  options.merges_lazily = memory.merges_lazily;
  options.trim_above = memory.trim_above;
  options.trim_after = memory.trim_after;
  options.compact_free = memory.compact_free;
  options.compact_failures = memory.compact_failures;
  options.look_every = memory.compact_every;
  memory::bind_page_pool(memory.bind);
  memory::configure_page_pool(std::move(options), memory.limit,
                              undoable || info.shares_process || info.nodes.empty()
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
    const std::uint64_t given = pool.compact(core.runner->held().blocks());
    log(LogLevel::debug,
        "compaction gave " + format_bytes(given) + " of host memory back: " + pool.statistics().to_text());
  });
}

}  // namespace gradwire::session
