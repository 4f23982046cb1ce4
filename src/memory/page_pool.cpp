#include "memory/page_pool.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "memory/poison.hpp"

namespace gradwire::memory {
namespace {

constexpr std::size_t pages_for(std::size_t bytes) { return bytes / kPageBytes + (bytes % kPageBytes != 0 ? 1 : 0); }
constexpr std::size_t index_of(MemoryUse use) { return static_cast<std::size_t>(use); }

}  // namespace

PagePool::PagePool(PageSource& source, PagePoolOptions options) : source_(source), options_(std::move(options)) {
  if (options_.protection.not_dumped || options_.protection.locked) {
    source_.protect(options_.protection);
  }
}

PagePool::~PagePool() {
  const MutexLock lock(mutex_);
  try {
    join_all();
    give_back(std::numeric_limits<std::uint64_t>::max());
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the rest stays mapped
  }
}

PagePool::Size PagePool::size_of(std::size_t bytes) noexcept {
  const std::size_t pages = pages_for(bytes);
  if (pages <= kExactPages) {
    return {pages - 1, pages};
  }
  if (pages > kMostClassPages) {
    return {kClasses, pages};
  }
  // A doubling from 2^(bits-1) to 2^bits pages has kSteps = 2^3 classes.
  const auto bits = static_cast<std::size_t>(std::bit_width(pages - 1));
  const std::size_t shift = bits - 4;
  const std::size_t steps = (pages - 1) >> shift;
  return {kExactPages + (bits - 5) * kSteps + steps % kSteps, (steps + 1) << shift};
}

void PagePool::count(MemoryUse use, std::uint64_t bytes) noexcept {
  PagePoolStatistics::OfUse& of_use = statistics_.uses[index_of(use)];
  of_use.in_use += bytes;
  of_use.high_water = std::max(of_use.high_water, of_use.in_use);
  statistics_.in_use += bytes;
  window_high_water_ = std::max(window_high_water_, statistics_.in_use);
  failures_in_a_row_ = 0;
}

std::byte* PagePool::allocate(std::size_t bytes, MemoryUse use) {
  const Size size = size_of(bytes);
  std::byte* memory = nullptr;
  {
    const MutexLock lock(mutex_);
    if (size.number < kClasses && !classes_[size.number].free.empty()) [[likely]] {
      memory = classes_[size.number].free.back();
      classes_[size.number].free.pop_back();
    } else {
      memory = cut(size);
    }
    if (memory == nullptr) [[unlikely]] {
      note_failure(bytes);
      throw Error(ErrorCode::out_of_memory, refusal(bytes, "a block for " + std::string(to_string(use)) + " needs"));
    }
    count(use, size.pages * kPageBytes);
    if (watch_) [[unlikely]] {
      watch_({memory, bytes, use, true});
    }
  }
  unpoison(memory, bytes);
  return memory;
}

void PagePool::free(std::byte* memory, std::size_t bytes, MemoryUse use) noexcept {
  const Size size = size_of(bytes);
  poison(memory, size.pages * kPageBytes);
  const MutexLock lock(mutex_);
  statistics_.uses[index_of(use)].in_use -= size.pages * kPageBytes;
  statistics_.in_use -= size.pages * kPageBytes;
  if (watch_) [[unlikely]] {
    watch_({memory, bytes, use, false});
  }
  if (!options_.merges_lazily) {
    try {
      join(memory, size.pages);
      --(size.number < kClasses ? classes_[size.number].cut : large_);
      return;
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it waits in the list
    }
  }
  if (size.number < kClasses) [[likely]] {
    classes_[size.number].free.push_back(memory);
  } else {
    unjoined_.push_back({address_of(memory), size.pages});
  }
}

// Cuts a block out of a run of pages; null where there is no memory.
std::byte* PagePool::cut(const Size& size) {
  // First comes the room in the list that free() will need, since that may not fail.
  if (size.number < kClasses) {
    Class& of_size = classes_[size.number];
    if (of_size.free.capacity() <= of_size.cut) {
      of_size.free.reserve(std::max<std::size_t>(16, 2 * of_size.cut));
    }
  } else if (unjoined_.capacity() <= large_) {
    unjoined_.reserve(std::max<std::size_t>(16, 2 * large_));
  }
  const PageAddress found = find_run(size.pages);
  if (found == 0) {
    return nullptr;
  }
  ++(size.number < kClasses ? classes_[size.number].cut : large_);
  return memory_at(found);
}

PageAddress PagePool::find_run(std::size_t pages) {
  if (const PageAddress found = runs_.take(pages); found != 0) {
    return found;
  }
  join_all();
  if (const PageAddress found = runs_.take(pages); found != 0) {
    return found;
  }
  if (grow(pages)) {
    return runs_.take(pages);
  }
  // Regions that are free, but too short, count for the limit: others may take their place.
  if (give_back(std::numeric_limits<std::uint64_t>::max()) > 0 && grow(pages)) {
    return runs_.take(pages);
  }
  return 0;
}

bool PagePool::may_grow(std::uint64_t bytes) {
  const auto fits = [&] {
    mutex_.assert_held();
    return bytes <= options_.limit.bytes && statistics_.reserved <= options_.limit.bytes - bytes;
  };
  if (!fits() && options_.limit_now) {
    options_.limit = options_.limit_now(statistics_.reserved);
  }
  return fits();
}

bool PagePool::grow(std::size_t pages) {
  const std::uint64_t bytes = (pages + kRegionPages - 1) / kRegionPages * kRegionBytes;
  if (!may_grow(bytes)) {
    return false;
  }
  std::byte* const memory = source_.map(bytes, options_.huge_pages);
  if (memory == nullptr) {
    return false;
  }
  try {
    runs_.add({address_of(memory), bytes / kPageBytes});
  } catch (const std::bad_alloc&) {
    source_.unmap(memory, bytes);
    return false;
  }
  poison(memory, bytes);
  statistics_.pages = source_.given();
  statistics_.reserved += bytes;
  statistics_.reserved_high_water = std::max(statistics_.reserved_high_water, statistics_.reserved);
  ++statistics_.maps;
  return true;
}

void PagePool::join(std::byte* memory, std::size_t pages) { runs_.add({address_of(memory), pages}); }

void PagePool::join_all() {
  for (std::size_t number = 0; number < kClasses; ++number) {
    Class& of_size = classes_[number];
    const std::size_t doubling = number < kExactPages ? 0 : (number - kExactPages) / kSteps;
    const std::size_t pages =
        number < kExactPages ? number + 1 : (kSteps + (number - kExactPages) % kSteps + 1) << (doubling + 1);
    for (; !of_size.free.empty(); of_size.free.pop_back(), --of_size.cut) {
      join(of_size.free.back(), pages);
    }
  }
  for (; !unjoined_.empty(); unjoined_.pop_back(), --large_) {
    runs_.add(unjoined_.back());
  }
}

// Gives free regions back to the system, the last ones first, until `most` bytes are reached. Returns how many it gave.
std::uint64_t PagePool::give_back(std::uint64_t most) {
  std::vector<PageRun> whole;  // runs of whole regions
  for (const auto& [begin, pages] : runs_.by_address()) {
    const PageAddress first = (begin + kRegionBytes - 1) / kRegionBytes * kRegionBytes;
    const PageAddress last = PageRun{begin, pages}.end() / kRegionBytes * kRegionBytes;
    if (first < last) {
      whole.push_back({first, (last - first) / kPageBytes});
    }
  }
  std::uint64_t given = 0;
  for (; !whole.empty() && given < most; whole.pop_back()) {
    PageRun run = whole.back();
    const std::uint64_t wanted =
        std::min<std::uint64_t>((most - given - 1) / kRegionBytes + 1, run.pages / kRegionPages);
    run.begin = run.end() - wanted * kRegionBytes;
    run.pages = wanted * kRegionPages;
    static_cast<void>(runs_.take_all_between(run.begin, run.end()));
    unmap(run);
    given += run.pages * kPageBytes;
  }
  return given;
}

void PagePool::unmap(PageRun run) {
  const std::uint64_t bytes = run.pages * kPageBytes;
  unpoison(memory_at(run.begin), bytes);
  source_.unmap(memory_at(run.begin), bytes);
  statistics_.reserved -= bytes;
  statistics_.trimmed += bytes;
}

void PagePool::note_failure(std::uint64_t bytes) noexcept {
  ++statistics_.failures;
  ++failures_in_a_row_;
  const auto free = static_cast<double>(statistics_.free());
  if (failures_in_a_row_ >= options_.compact_failures ||
      (bytes <= statistics_.free() && free > options_.compact_free * static_cast<double>(statistics_.reserved))) {
    compaction_due_.store(true, std::memory_order_relaxed);
  }
}

std::string PagePool::refusal(std::uint64_t bytes, std::string_view what) {
  std::string uses;
  for (std::size_t use = 0; use < kMemoryUses; ++use) {
    if (const std::uint64_t in_use = statistics_.uses[use].in_use; in_use > 0) {
      uses += (uses.empty() ? ": " : ", ") + std::string(to_string(static_cast<MemoryUse>(use))) + ' ' +
              format_bytes(in_use);
    }
  }
  std::string text = std::string(what) + ' ' + format_bytes(bytes) + " of host memory, and gradwire has " +
                     format_bytes(statistics_.in_use) + " in use" + uses + " (" + format_bytes(statistics_.reserved) +
                     " reserved); ";
  if (may_grow(bytes)) {
    return text + "the system gives no more (" + source_.why() + "): use smaller chunks or fewer ranks on this host";
  }
  return text + "the limit is " + format_bytes(options_.limit.bytes) + " (" + options_.limit.source +
         "): raise it, or use larger codes, fewer residuals, or fewer ranks on this host";
}

bool PagePool::fits(std::uint64_t bytes) {
  const std::uint64_t free = statistics_.free();
  return bytes <= free || may_grow(bytes - free);
}

bool PagePool::has_room(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  return fits(bytes);
}

void PagePool::require(std::uint64_t bytes, std::string_view what) {
  const MutexLock lock(mutex_);
  if (!fits(bytes)) {
    note_failure(bytes);
    throw Error(ErrorCode::out_of_memory, refusal(bytes, what));
  }
}

void PagePool::tend(Clock::time_point now) {
  const MutexLock lock(mutex_);
  if (now - last_look_ >= options_.look_every) {
    last_look_ = now;
    const auto needed =
        static_cast<double>(std::max(window_high_water_, last_window_high_water_) + options_.trim_above);
    if (static_cast<double>(statistics_.reserved) > kAimedReserve * needed) {
      compaction_due_.store(true, std::memory_order_relaxed);
    }
  }
  if (now - window_begin_ < options_.trim_after) {
    return;
  }
  const std::uint64_t kept = window_high_water_ + options_.trim_above;
  if (statistics_.reserved >= kept + kRegionBytes) {
    join_all();
    give_back((statistics_.reserved - kept) / kRegionBytes * kRegionBytes);
  }
  statistics_.high_water = std::max(statistics_.high_water, window_high_water_);
  last_window_high_water_ = std::exchange(window_high_water_, statistics_.in_use);
  window_begin_ = now;
}

void PagePool::configure(PagePoolOptions options) {
  const MutexLock lock(mutex_);
  if (options.protection.not_dumped || options.protection.locked) {
    source_.protect(options.protection);
  }
  options_ = std::move(options);
  if (options_.limit_now) {
    options_.limit = options_.limit_now(statistics_.reserved);
  }
  if (statistics_.reserved > options_.limit.bytes) {  // free memory above the limit is not for use
    join_all();
    give_back(statistics_.reserved - options_.limit.bytes);
  }
}

void PagePool::watch(std::function<void(const PoolEvent&)> watch) {
  const MutexLock lock(mutex_);
  watch_ = std::move(watch);
}

PagePoolOptions PagePool::options() const {
  const MutexLock lock(mutex_);
  return options_;
}

PagePoolStatistics PagePool::statistics() const {
  const MutexLock lock(mutex_);
  PagePoolStatistics now = statistics_;
  now.high_water = std::max(now.high_water, window_high_water_);
  now.limit = options_.limit.bytes;
  now.longest_free = runs_.longest() * kPageBytes;
  return now;
}

}  // namespace gradwire::memory
