#include "memory/page_runs.hpp"

#include <algorithm>
#include <iterator>

namespace gradwire::memory {

void PageRuns::insert(PageRun run) {
  const auto place = by_address_.emplace(run.begin, run.pages).first;
  try {
    by_length_.emplace(run.pages, run.begin);
  } catch (...) {
    by_address_.erase(place);
    throw;
  }
  pages_ += run.pages;
}

PageRuns::Place PageRuns::erase(Place place) {
  by_length_.erase({place->second, place->first});
  pages_ -= place->second;
  return by_address_.erase(place);
}

void PageRuns::add(PageRun run) {
  const auto next = by_address_.lower_bound(run.begin);
  const auto before = next == by_address_.begin() ? by_address_.end() : std::prev(next);
  const bool joins_next = next != by_address_.end() && next->first == run.end();
  const bool joins_before = before != by_address_.end() && PageRun{before->first, before->second}.end() == run.begin;
  PageRun joined = run;
  if (joins_next) {
    joined.pages += next->second;
  }
  if (joins_before) {
    joined.begin = before->first;
    joined.pages += before->second;
  }
  // The only statements that may throw come first, so that no page is lost.
  by_length_.emplace(joined.pages, joined.begin);
  if (joins_before) {
    by_length_.erase({before->second, before->first});
    before->second = joined.pages;
  } else {
    try {
      by_address_.emplace_hint(next, joined.begin, joined.pages);
    } catch (...) {
      by_length_.erase({joined.pages, joined.begin});
      throw;
    }
  }
  if (joins_next) {
    by_length_.erase({next->second, next->first});
    by_address_.erase(next);
  }
  pages_ += run.pages;
}

PageAddress PageRuns::take(std::size_t pages) {
  const auto found = by_length_.lower_bound({pages, 0});
  if (found == by_length_.end()) {
    return 0;
  }
  const auto [length, begin] = *found;
  const std::size_t left = length - pages;
  const auto place = by_address_.find(begin);
  if (left == 0) {
    erase(place);
    return begin;
  }
  by_length_.emplace(left, begin);  // the only statement that may throw
  by_length_.erase(found);
  place->second = left;
  pages_ -= pages;
  return begin + left * kPageBytes;
}

std::vector<PageRun> PageRuns::take_all_between(PageAddress begin, PageAddress end) {
  std::vector<PageRun> taken;
  auto place = by_address_.upper_bound(begin);
  if (place != by_address_.begin() && PageRun{std::prev(place)->first, std::prev(place)->second}.end() > begin) {
    --place;
  }
  while (place != by_address_.end() && place->first < end) {
    const PageRun run{place->first, place->second};
    place = erase(place);
    const PageAddress first = std::max(run.begin, begin);
    const PageAddress last = std::min(run.end(), end);
    taken.push_back({first, (last - first) / kPageBytes});
    if (run.begin < first) {
      insert({run.begin, (first - run.begin) / kPageBytes});
    }
    if (last < run.end()) {
      insert({last, (run.end() - last) / kPageBytes});
    }
  }
  return taken;
}

}  // namespace gradwire::memory
