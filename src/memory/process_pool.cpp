#include "memory/process_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/environment.hpp"
#include "base/units.hpp"
#include "memory/memory_left.hpp"

namespace gradwire::memory {
namespace {

// `limit` is the one so far. Other ranks have taken their shares in the meantime, so a share of what is left now would
// take this rank's own away.
MemoryLimit limit_by_system(std::uint64_t reserved, int ranks, std::uint64_t& limit) {
  const MemoryLeft left = memory_left();
  const std::uint64_t share = left.bytes / static_cast<std::uint64_t>(std::max(1, ranks));
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - reserved;
  limit = std::min(std::max(limit, reserved + std::min(share, most)), reserved + std::min(left.bytes, most));
  return {limit, "what " + left.source + " leaves" +
                     (ranks > 1 ? " to one of " + std::to_string(ranks) + " ranks" : "") +
                     "; [memory] limit or GRADWIRE_MEMORY_LIMIT may say another"};
}

void set_limit(PagePoolOptions& options, std::optional<std::uint64_t> limit, int ranks) {
  const std::optional<std::string> operators = environment("GRADWIRE_MEMORY_LIMIT");
  options.limit_now = {};
  if (operators && (!limit || parse_bytes(*operators) < *limit)) {
    options.limit = {parse_bytes(*operators), "GRADWIRE_MEMORY_LIMIT"};
  } else if (limit) {
    options.limit = {*limit, "limit in [memory] of the policy"};
  } else {
    options.limit = {0, "what the system leaves"};
    options.limit_now = [ranks, limit = std::uint64_t{0}](std::uint64_t reserved) mutable {
      return limit_by_system(reserved, ranks, limit);
    };
  }
}

SystemPages& system_pages() {
  static SystemPages& pages = *new SystemPages;
  return pages;
}

PagePool& make_pool() {
  PagePoolOptions options;
  set_limit(options, std::nullopt, 1);
  return *new PagePool(system_pages(), std::move(options));
}

// pthread_atfork() has the pool's lock held between its calls, so that the child finds the pool whole.
void before_fork() noexcept NO_THREAD_SAFETY_ANALYSIS { page_pool().lock_for_fork(); }
void after_fork() noexcept NO_THREAD_SAFETY_ANALYSIS { page_pool().unlock_after_fork(); }

}  // namespace

PagePool& page_pool() {
  static PagePool& pool = [&]() -> PagePool& {
    PagePool& made = make_pool();
    ::pthread_atfork(&before_fork, &after_fork, &after_fork);
    return made;
  }();
  return pool;
}

void configure_page_pool(PagePoolOptions options, std::optional<std::uint64_t> limit, int ranks) {
  set_limit(options, limit, ranks);
  page_pool().configure(std::move(options));
}

void bind_page_pool(bool binds) { system_pages().bind_to(binds ? &own_placement() : nullptr); }

}  // namespace gradwire::memory
