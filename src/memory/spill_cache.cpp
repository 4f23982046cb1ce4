#include "memory/spill_cache.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace gradwire::memory {
namespace {

// How far ahead pages are read, and how many go at once, as shares of the memory and in bytes.
constexpr std::uint64_t kAheadShare = 16;
constexpr std::uint64_t kEvictShare = 8;
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

void SpillCache::reserve_beside(std::uint64_t bytes) {
  std::uint64_t end = 0;
  {
    const MutexLock lock(mutex_);
    end = static_cast<std::uint64_t>(places_.end) * kFileUnit;
    std::uint64_t free = 0;
    for (const auto& [page_bytes, places] : places_.free) {
      free += page_bytes * places.size();
    }
    for (const Page& page : pages_) {
      bytes += page.used > 0 && page.place < 0 ? page.bytes : 0;
    }
    bytes -= std::min(bytes, free);
  }
  reserve(end + bytes);
}

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
      for (std::vector<Number>* list : {&free_pages_, &resident_}) {
        if (list->capacity() < pages_.size()) {
          list->reserve(2 * pages_.size());
        }
      }
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

void SpillCache::take_memory(Number number) {
  Page& page = pages_[number];
  make_room(page.bytes);
  page.memory = Block(page.bytes, MemoryUse::residuals);
  page.slot = resident_.size();
  resident_.push_back(number);  // has room for all
  statistics_.resident += page.bytes;
  statistics_.high_water = std::max(statistics_.high_water, statistics_.resident);
}

void SpillCache::give_memory(Page& page) noexcept {
  if (!page.memory.empty()) {
    page.memory.release();
    resident_[page.slot] = resident_.back();
    pages_[resident_.back()].slot = page.slot;
    resident_.pop_back();
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
    if (!evict(statistics_.resident + bytes - memory_)) {
      return;  // nothing is resident: the page itself is larger than the limit
    }
  }
}

void SpillCache::begin_read(Number number) {
  Page& page = pages_[number];
  take_memory(number);
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

// Returns how many pages of a round come before the page is needed. Pages that this round is done with, or that are in
// none, are further than all others.
std::uint64_t SpillCache::distance_of(const Page& page) const {
  if (page.position == 0 || (page.round == round_ && page.finished)) {
    return order_.size() + page.position + 1;
  }
  return page.position > at_ ? page.position - at_ : 0;
}

// Lets pages go until `bytes` are free or being written: those that are needed last, first among those that may go.
// Goes on with some that this round does not need, so that one search serves many pages, and they are written at once.
// Returns false where nothing is in memory.
bool SpillCache::evict(std::size_t bytes) {
  struct Candidate {
    bool cold;
    std::uint64_t distance;
    Number number;
    [[nodiscard]] auto operator<=>(const Candidate&) const = default;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(resident_.size());
  for (const Number number : resident_) {
    const Page& page = pages_[number];
    candidates.push_back({!page.hot, page.io == Io::none ? distance_of(page) : 0, number});
  }
  statistics_.compared += candidates.size();
  std::make_heap(candidates.begin(), candidates.end());
  const std::uint64_t most = std::min(memory_ / kEvictShare, kMostAhead);
  std::uint64_t gone = 0;
  for (auto end = candidates.end(); end != candidates.begin() && gone < std::max<std::uint64_t>(bytes, most);) {
    const Candidate& next = candidates.front();
    if (gone >= bytes && (!next.cold || next.distance <= order_.size())) {
      break;
    }
    Page& page = pages_[next.number];
    settle(page);
    gone += page.bytes;
    page.dirty ? begin_write(next.number) : give_memory(page);
    std::pop_heap(candidates.begin(), end--);
  }
  return gone > 0;
}

// Makes a page resident, with its content.
void SpillCache::bring(Number number) {
  Page& page = pages_[number];
  settle(page);
  if (!page.memory.empty()) {
    return;
  }
  if (page.holds) {
    statistics_.demanded += page.bytes;
    begin_read(number);
    settle(page);
    return;
  }
  take_memory(number);
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
      bring(number);
    }
    std::memcpy(to.data(), page.memory.data() + offset, to.size());
  }
  use(number, access, to.size());
}

void SpillCache::write(Number number, std::size_t offset, std::span<const std::byte> from, Access access) {
  const MutexLock lock(mutex_);
  Page& page = pages_[number];
  if (from.size() == page.used && page.io == Io::none && page.memory.empty()) {
    take_memory(number);
    page.holds = true;
  } else {
    bring(number);
  }
  std::memcpy(page.memory.data() + offset, from.data(), from.size());
  page.dirty = true;
  use(number, access, from.size());
}

}  // namespace gradwire::memory
