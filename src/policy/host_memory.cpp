#include "policy/host_memory.hpp"

#include <utility>

#include "memory/process_pool.hpp"

namespace gradwire::policy {

void configure_host_memory(const Policy& policy, int ranks) {
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
  memory::configure_page_pool(std::move(options), memory.limit, ranks);
}

}  // namespace gradwire::policy
