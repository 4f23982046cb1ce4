// How the pool moves blocks: those of the emptiest regions go to free runs of fuller ones, and the regions left empty
// go back to the system. A region takes part only if everything in it was offered.
#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "memory/block.hpp"
#include "memory/poison.hpp"

namespace gradwire::memory {
namespace {

PageAddress region_of(PageAddress address) { return address / kRegionBytes * kRegionBytes; }

// Calls body(region, part) for the part of the run in each region.
template <typename Body>
void for_each_region(PageRun run, Body body) {
  for (PageAddress at = run.begin; at < run.end();) {
    const PageAddress end = std::min(region_of(at) + kRegionBytes, run.end());
    body(region_of(at), PageRun{at, (end - at) / kPageBytes});
    at = end;
  }
}

struct Offered {
  std::size_t pages = 0;  // of blocks that were offered
  std::size_t free = 0;
  bool movable = true;  // no block is larger than a region
  std::vector<std::size_t> blocks = {};
};

}  // namespace

/// The regions that are to be emptied. Their free pages are not in the runs of the pool, so that no block moves there.
/// The destructor puts pages that are still free back into the runs.
class PagePool::Evacuation {
 public:
  explicit Evacuation(PagePool& pool) : pool_(pool) {}
  Evacuation(const Evacuation&) = delete;
  Evacuation& operator=(const Evacuation&) = delete;
  ~Evacuation() {
    while (!free_.empty()) {
      try {
        open(free_.begin()->first);
      } catch (const std::bad_alloc&) {
        free_.erase(free_.begin());  // these pages are lost until the pool ends
      }
    }
  }

  void close(PageAddress region) NO_THREAD_SAFETY_ANALYSIS {
    free_[region] = pool_.runs_.take_all_between(region, region + kRegionBytes);
  }
  void open(PageAddress region) NO_THREAD_SAFETY_ANALYSIS {
    for (std::vector<PageRun>& runs = free_.at(region); !runs.empty(); runs.pop_back()) {
      pool_.runs_.add(runs.back());
    }
    free_.erase(region);
  }
  /// Unmaps a closed region that is empty.
  void unmap(PageAddress region) NO_THREAD_SAFETY_ANALYSIS {
    free_.erase(region);
    pool_.unmap({region, kRegionPages});
  }
  void add(PageRun freed) NO_THREAD_SAFETY_ANALYSIS {
    for_each_region(freed, [this](PageAddress region, PageRun part) NO_THREAD_SAFETY_ANALYSIS {
      if (const auto closed = free_.find(region); closed != free_.end()) {
        closed->second.push_back(part);
      } else {
        pool_.runs_.add(part);
      }
    });
  }

 private:
  PagePool& pool_;  // its mutex is held for as long as this exists
  std::map<PageAddress, std::vector<PageRun>> free_;
};

std::uint64_t PagePool::aimed() const noexcept {
  return static_cast<std::uint64_t>(kAimedReserve * static_cast<double>(statistics_.in_use)) + kRegionBytes;
}

// Moves a block to another place. Returns whether there was one.
bool PagePool::move(Block& block, Evacuation& evacuation) {
  const std::size_t pages = size_of(block.bytes_).pages;
  const PageAddress place = runs_.take(pages);
  if (place == 0) {
    return false;
  }
  unpoison(memory_at(place), block.bytes_);
  std::memcpy(memory_at(place), block.data_, block.bytes_);
  poison(block.data_, pages * kPageBytes);
  const PageRun freed{address_of(block.data_), pages};
  block.data_ = memory_at(place);
  statistics_.moved += block.bytes_;
  evacuation.add(freed);
  return true;
}

std::uint64_t PagePool::compact(std::span<Block* const> blocks) {
  const MutexLock lock(mutex_);
  compaction_due_.store(false, std::memory_order_relaxed);
  ++statistics_.compactions;
  const std::uint64_t before = statistics_.reserved;
  join_all();

  std::map<PageAddress, Offered> regions;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == nullptr || blocks[i]->pool_ != this) {
      continue;
    }
    const std::size_t pages = size_of(blocks[i]->bytes_).pages;
    for_each_region({address_of(blocks[i]->data_), pages}, [&](PageAddress region, PageRun part) {
      Offered& offered = regions[region];
      offered.pages += part.pages;
      offered.movable = offered.movable && pages <= kRegionPages;
      offered.blocks.push_back(i);
    });
  }
  for (const auto& [begin, pages] : runs_.by_address()) {
    for_each_region({begin, pages}, [&](PageAddress region, PageRun part) {
      if (const auto found = regions.find(region); found != regions.end()) {
        found->second.free += part.pages;
      }
    });
  }
  std::vector<std::pair<std::size_t, PageAddress>> sparse;  // pages in use, and the region
  for (const auto& [region, offered] : regions) {
    if (offered.movable && offered.free > 0 && offered.pages + offered.free == kRegionPages) {
      sparse.emplace_back(offered.pages, region);
    }
  }
  std::sort(sparse.begin(), sparse.end());

  Evacuation evacuation(*this);
  for (const auto& [pages, region] : sparse) {
    evacuation.close(region);
  }
  for (std::size_t first = 0, last = sparse.size(); first < last && statistics_.reserved > aimed();) {
    const PageAddress region = sparse[first].second;
    const std::vector<std::size_t>& own = regions.at(region).blocks;
    const bool emptied = std::all_of(own.begin(), own.end(), [&](std::size_t i) {
      mutex_.assert_held();
      const PageRun run{address_of(blocks[i]->data_), size_of(blocks[i]->bytes_).pages};
      return run.end() <= region || run.begin >= region + kRegionBytes || move(*blocks[i], evacuation);
    });
    if (emptied) {
      evacuation.unmap(region);
      ++first;
    } else {
      evacuation.open(sparse[--last].second);  // the fullest one takes blocks of the others
    }
  }
  if (statistics_.reserved > aimed()) {
    give_back(statistics_.reserved - aimed());
  }
  return before - statistics_.reserved;
}

}  // namespace gradwire::memory
