#include "policy/host_memory.hpp"

#include "memory/process_pool.hpp"

namespace gradwire::policy {

void configure_host_memory(const Policy& policy, int ranks) {
  const Policy::Memory& memory = policy.memory;
  using Given = Policy::Memory::HugePages;
  using memory::HugePages;
  const HugePages huge_pages = memory.huge_pages == Given::madvise     ? HugePages::madvise
                               : memory.huge_pages == Given::hugetlbfs ? HugePages::hugetlbfs
                                                                       : HugePages::off;
  memory::bind_page_pool(memory.bind);
  memory::configure_page_pool(
      {.huge_pages = huge_pages,
       .protection = {.not_dumped = policy.security.no_dump, .locked = policy.security.lock_memory},
       .merges_lazily = memory.merges_lazily,
       .trim_above = memory.trim_above,
       .trim_after = memory.trim_after,
       .compact_free = memory.compact_free,
       .compact_failures = memory.compact_failures,
       .look_every = memory.compact_every},
      memory.limit, ranks);
}

}  // namespace gradwire::policy
