#include "memory/spill_cache.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace gradwire::memory {
namespace {

// How far ahead pages are read.
constexpr std::uint64_t kAheadShare = 16;
constexpr std::uint64_t kMostAhead = std::uint64_t{16} << 20;

PageFileOptions with_units(PageFileOptions options) {
  options.page_bytes = kFileUnit;
  return options;
}

}  // namespace

SpillCache::SpillCache(PageFileOptions file, std::uint64_t memory, const MakeFileRequests& make)
    : memory_(memory),
      ahead_bytes_(std::min(memory / kAheadShare, kMostAhead)),
      file_(with_units(std::move(file)), make) {}

SpillCache::~SpillCache() = default;

void SpillCache::reserve(std::uint64_t bytes) { file_.reserve((bytes + kFileUnit - 1) / kFileUnit); }

SpillStatistics SpillCache::statistics() const {
  const MutexLock lock(mutex_);
  SpillStatistics statistics = statistics_;
  statistics.file = file_.statistics();
  return statistics;
}

std::vector<SpillCache::Number> SpillCache::add(std::size_t bytes, std::size_t page_bytes) {
  const MutexLock lock(mutex_);
  std::vector<Number> numbers((bytes + page_bytes - 1) / page_bytes);
  for (Number& number : numbers) {
    if (free_pages_.empty()) {
      pages_.emplace_back();
      free_pages_.reserve(pages_.size());
      free_pages_.push_back(static_cast<Number>(pages_.size() - 1));
    }
    number = free_pages_.back();
    free_pages_.pop_back();
    pages_[number].bytes = page_bytes;
    pages_[number].used = std::min(page_bytes, bytes);
    bytes -= pages_[number].used;
  }
  statistics_.bytes += numbers.size() * page_bytes;
  return numbers;
}

void SpillCache::remove(std::span<const Number> pages) noexcept {
  if (home_.is_elsewhere()) {  // a thread of the parent may have held the lock
    return;
  }
  const MutexLock lock(mutex_);
  for (const Number number : pages) {
    Page& page = pages_[number];
    settle_quietly(page);
    give_memory(page);
    statistics_.bytes -= page.bytes;
    try {
      if (page.place >= 0) {
        places_.free[page.bytes].push_back(page.place);
      }
    } catch (const std::bad_alloc&) {
      // The place stays unused.
    }
    page = {};
    free_pages_.push_back(number);  // has room for all
  }
  // Another array may get the numbers.
  const auto is_gone = [&](Number number) REQUIRES(mutex_) { return pages_[number].bytes == 0; };
  std::erase_if(finished_, is_gone);
  std::erase_if(writing_, is_gone);
  std::erase_if(trace_, is_gone);
  if (std::erase_if(order_, is_gone) > 0) {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      pages_[order_[i]].position = i + 1;
    }
    at_ = 0;
  }
}

// Waits for the request of a page. Its memory is gone after a read that failed, and stays after a write that failed.
void SpillCache::settle(Page& page) {
  if (page.io == Io::none) {
    return;
  }
  const Io io = std::exchange(page.io, Io::none);
  try {
    file_.wait(std::exchange(page.request, {}));
  } catch (...) {
    if (io == Io::reads) {
      give_memory(page);
    } else {
      page.dirty = true;
    }
    throw;
  }
}

void SpillCache::settle_quietly(Page& page) noexcept {
  try {
    settle(page);
  } catch (...) {
    // Nobody needs its content any more.
  }
}

void SpillCache::take_memory(Page& page) {
  make_room(page.bytes);
  page.memory = Block(page.bytes, MemoryUse::residuals);
  statistics_.resident += page.bytes;
  statistics_.high_water = std::max(statistics_.high_water, statistics_.resident);
}

void SpillCache::give_memory(Page& page) noexcept {
  if (!page.memory.empty()) {
    page.memory.release();
    statistics_.resident -= page.bytes;
  }
}

void SpillCache::make_room(std::size_t bytes) {
  reclaim_written(false);
  while (statistics_.resident + bytes > memory_) {
    if (!writing_.empty()) {
      reclaim_written(true);
      continue;
    }
    const std::optional<Number> victim = find_victim();
    if (!victim) {
      return;  // nothing is resident: the page itself is larger than the limit
    }
    settle(pages_[*victim]);
    if (pages_[*victim].dirty) {
      begin_write(*victim);
    } else {
      give_memory(pages_[*victim]);
    }
  }
}

void SpillCache::begin_read(Page& page) {
  take_memory(page);
  try {
    page.request = file_.read(static_cast<PageFile::Page>(page.place), {page.memory.data(), page.bytes});
  } catch (...) {
    give_memory(page);
    throw;
  }
  page.io = Io::reads;
}

void SpillCache::begin_write(Number number) {
  Page& page = pages_[number];
  if (page.place < 0) {
    std::vector<std::int64_t>& free = places_.free[page.bytes];
    if (free.empty()) {
      page.place = places_.end;
      places_.end += static_cast<std::int64_t>(page.bytes / kFileUnit);
    } else {
      page.place = free.back();
      free.pop_back();
    }
  }
  writing_.push_back(number);
  page.request = file_.write(static_cast<PageFile::Page>(page.place), {page.memory.data(), page.bytes});
  page.io = Io::writes;
  page.dirty = false;
}

// Gives up the memory of pages that were written: of those whose request has ended, and of the oldest one if it waits.
void SpillCache::reclaim_written(bool waits) {
  while (!writing_.empty()) {
    Page& page = pages_[writing_.front()];
    if (page.io == Io::writes && !waits && !file_.done(page.request)) {
      return;
    }
    writing_.pop_front();
    if (page.io != Io::writes) {
      continue;  // it was used again in the meantime
    }
    settle(page);
    give_memory(page);
    waits = false;
  }
}

// Returns the page that is needed last, first among those that may go; none where nothing is in memory.
std::optional<SpillCache::Number> SpillCache::find_victim() {
  std::optional<Number> victim;
  std::pair<bool, std::uint64_t> best;
  for (Number number = 0; number < pages_.size(); ++number) {
    const Page& page = pages_[number];
    if (page.memory.empty()) {
      continue;
    }
    std::uint64_t distance = page.position > at_ ? page.position - at_ : 0;
    if (page.position == 0 || (page.round == round_ && page.finished)) {
      distance = order_.size() + page.position + 1;
    }
    if (const std::pair rank(!page.hot, page.io == Io::none ? distance : 0); !victim || rank > best) {
      victim = number;
      best = rank;
    }
  }
  return victim;
}

// Makes a page resident, with its content.
void SpillCache::bring(Page& page) {
  settle(page);
  if (!page.memory.empty()) {
    return;
  }
  if (page.holds) {
    statistics_.demanded += page.bytes;
    begin_read(page);
    settle(page);
    return;
  }
  take_memory(page);
  std::memset(page.memory.data(), 0, page.bytes);
  page.holds = true;
  page.dirty = true;
}

void SpillCache::read(Number number, std::size_t offset, std::span<std::byte> to, Access access) {
  const MutexLock lock(mutex_);
  Page& page = pages_[number];
  if (!page.holds) {
    std::memset(to.data(), 0, to.size());
  } else {
    if (page.io != Io::writes) {  // memory that is being written may be read
      bring(page);
    }
    std::memcpy(to.data(), page.memory.data() + offset, to.size());
  }
  use(number, access, to.size());
}

void SpillCache::write(Number number, std::size_t offset, std::span<const std::byte> from, Access access) {
  const MutexLock lock(mutex_);
  Page& page = pages_[number];
  if (from.size() == page.used && page.io == Io::none && page.memory.empty()) {
    take_memory(page);
    page.holds = true;
  } else {
    bring(page);
  }
  std::memcpy(page.memory.data() + offset, from.data(), from.size());
  page.dirty = true;
  use(number, access, from.size());
}

}  // namespace gradwire::memory
