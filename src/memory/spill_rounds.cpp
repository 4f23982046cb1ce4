// The part of SpillCache that learns the order of a round, reads ahead, and writes behind.
#include <algorithm>

#include "gradwire/error.hpp"
#include "memory/spill_cache.hpp"

namespace gradwire::memory {
namespace {

// The memory for pages that come and go, in units of the bytes that are read ahead.
constexpr std::uint64_t kMovingShares = 3;

}  // namespace

void SpillCache::use(Number number, Access access, std::size_t bytes) {
  if (access == Access::look) {
    return;
  }
  Page& page = pages_[number];
  if (access == Access::load && page.round == round_ && page.stored >= page.used) {  // all of it is new in this round
    begin_round();
  }
  const bool first = page.round != round_;
  if (first) {
    page.round = round_;
    page.finished = false;
    page.loaded = 0;
    page.stored = 0;
    trace_.push_back(number);
    at_ = std::max(at_, page.position);
  }
  (access == Access::load ? page.loaded : page.stored) += bytes;
  if (!page.finished && (page.stored >= page.used || (page.stored == 0 && page.loaded >= page.used))) {
    page.finished = true;
    finished_.push_back(number);
    write_behind();
  }
  if (first) {
    read_ahead();
  }
}

void SpillCache::begin_round() {
  for (const Number number : order_) {
    pages_[number].position = 0;
  }
  order_.swap(trace_);
  trace_.clear();
  for (std::size_t i = 0; i < order_.size(); ++i) {
    pages_[order_[i]].position = i + 1;
  }
  ++round_;
  at_ = 0;
  choose_hot();
}

// Spreads the pages that stay in memory evenly over the round, so that others come and go all the time.
void SpillCache::choose_hot() {
  std::uint64_t bytes = 0;
  for (Page& page : pages_) {
    page.hot = statistics_.bytes <= memory_;
    bytes += page.position > 0 ? page.bytes : 0;
  }
  const std::uint64_t moving = kMovingShares * ahead_bytes_;
  const double share = static_cast<double>(memory_ - moving) / static_cast<double>(std::max<std::uint64_t>(bytes, 1));
  double kept = 0;
  for (const Number number : order_) {
    Page& page = pages_[number];
    kept += std::min(share, 1.0) * static_cast<double>(page.bytes);
    if (page.hot || kept >= static_cast<double>(page.bytes)) {
      page.hot = true;
      kept -= static_cast<double>(page.bytes);
    }
  }
}

// Begins to read the pages that come next, as far as there is memory without a wait.
void SpillCache::read_ahead() {
  reclaim_written(false);
  if (statistics_.resident == statistics_.bytes) {
    return;  // nothing is left to read, so that no search is needed
  }
  std::uint64_t bytes = 0;
  for (std::uint64_t next = at_; next < at_ + order_.size() && bytes < ahead_bytes_; ++next) {
    Page& page = pages_[order_[next % order_.size()]];
    if (page.hot && !page.memory.empty()) {
      continue;
    }
    const bool is_used = page.round == round_ && next < order_.size();
    bytes += is_used ? 0 : page.bytes;
    if (is_used || !page.holds || !page.memory.empty()) {
      continue;
    }
    if (statistics_.resident + page.bytes > memory_) {
      return;
    }
    try {
      begin_read(order_[next % order_.size()]);
    } catch (const Error&) {
      return;  // the thread that needs the page reads it, and gets the error
    }
  }
}

// Waits until few enough pages are being written: a slow disk would otherwise take the memory that reading ahead needs.
void SpillCache::limit_writes(std::size_t bytes) {
  const auto under_way = [&]() REQUIRES(mutex_) {
    std::uint64_t all = 0;
    for (const Number number : writing_) {
      all += pages_[number].io == Io::writes ? pages_[number].bytes : 0;
    }
    return all;
  };
  while (!writing_.empty() && under_way() + bytes > ahead_bytes_) {
    reclaim_written(true);
  }
}

// Pages that are finished wait a while: all of a small one may have been loaded but not stored yet.
void SpillCache::write_behind() {
  std::uint64_t bytes = 0;
  for (const Number number : finished_) {
    bytes += pages_[number].bytes;
  }
  while (bytes > ahead_bytes_ / 2) {
    const Number number = finished_.front();
    finished_.pop_front();
    Page& page = pages_[number];
    bytes -= page.bytes;
    if (page.hot || statistics_.bytes <= memory_ || page.memory.empty() || page.io != Io::none) {
      continue;
    }
    if (page.dirty) {
      limit_writes(page.bytes);
      begin_write(number);
    } else {
      give_memory(page);
    }
  }
  reclaim_written(false);
}

}  // namespace gradwire::memory
