// The page pool of this process, and its limit: what the operator and the policy allow, or what the system leaves.
#pragma once

#include <cstdint>
#include <optional>

#include "memory/page_pool.hpp"

namespace gradwire::memory {

/// The pool of this process. It is never destroyed. A forked child has a copy of it as of the fork: what the child
/// writes changes nothing in the parent. Error(invalid_argument) for a wrong GRADWIRE_MEMORY_LIMIT.
[[nodiscard]] PagePool& page_pool();

/// Sets the options of page_pool(), apart from the limit: that is the lower one of `limit` and GRADWIRE_MEMORY_LIMIT.
/// If there is neither, it is what the pool holds and this rank's share of what the system leaves, looked up whenever a
/// request would exceed it. `ranks`: processes of this job on this host. The last call counts.
void configure_page_pool(PagePoolOptions options, std::optional<std::uint64_t> limit, int ranks);

/// Whether the pool asks for new pages on the memory node of own_placement(). The last call counts.
void bind_page_pool(bool binds);

}  // namespace gradwire::memory
