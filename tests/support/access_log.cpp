#include "tests/support/access_log.hpp"

#include <algorithm>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::test {

AccessLog::AccessLog(std::vector<std::string> queues)
    : queues_(std::move(queues)), clocks_(queues_.size(), Clock(queues_.size())), names_(queues_.size()) {}

void AccessLog::add(std::size_t queue, const std::string& what, std::span<const Access> accesses) {
  ++clocks_.at(queue)[queue];
  names_[queue].push_back(what);
  for (const Access& access : accesses) {
    if (access.memory != nullptr && access.bytes > 0) {
      touch(queue, access);
    }
  }
}

// Makes `address` a border between ranges.
AccessLog::Ranges::iterator AccessLog::cut(std::uintptr_t address) {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) {
    return after;
  }
  const auto at = std::prev(after);
  if (at->first == address) {
    return at;
  }
  if (at->second.end <= address) {
    return after;
  }
  Range tail = at->second;
  at->second.end = address;
  return ranges_.emplace_hint(after, address, std::move(tail));
}

void AccessLog::touch(std::size_t queue, const Access& access) {
  const auto begin = reinterpret_cast<std::uintptr_t>(access.memory);
  const std::uintptr_t end = begin + access.bytes;
  cut(end);
  auto range = cut(begin);
  for (std::uintptr_t at = begin; at < end; at = range->second.end, ++range) {
    if (range == ranges_.end() || range->first > at) {  // this address was never touched before
      const std::uintptr_t stop = range == ranges_.end() ? end : std::min(end, range->first);
      range = ranges_.emplace_hint(range, at, Range{stop, Clock(queues_.size()), Clock(queues_.size())});
    }
    check(queue, range->second, access.writes);
    (access.writes ? range->second.write : range->second.read)[queue] = clocks_[queue][queue];
  }
}

void AccessLog::check(std::size_t queue, const Range& range, bool writes) const {
  for (std::size_t other = 0; other < queues_.size(); ++other) {
    const std::uint64_t conflict = writes ? std::max(range.write[other], range.read[other]) : range.write[other];
    if (other != queue && conflict > clocks_[queue][other]) {
      throw Error(ErrorCode::internal, names_[queue].back() + " on the " + queues_[queue] + " queue " +
                                           (writes ? "writes" : "reads") + " memory that " +
                                           names_[other][conflict - 1] + " on the " + queues_[other] +
                                           " queue uses, and no event is between them");
    }
  }
}

void AccessLog::wait(std::size_t queue, const Clock& event) {
  Clock& clock = clocks_.at(queue);
  for (std::size_t other = 0; other < clock.size(); ++other) {
    clock[other] = std::max(clock[other], event.at(other));
  }
}

void AccessLog::wait_on_host(const Clock& event) {
  for (std::size_t queue = 0; queue < queues_.size(); ++queue) {
    wait(queue, event);
  }
}

bool AccessLog::knows_all(std::size_t queue) const {
  for (std::size_t other = 0; other < queues_.size(); ++other) {
    if (clocks_.at(queue)[other] < names_[other].size()) {
      return false;
    }
  }
  return true;
}

std::vector<Access> AccessLog::all() const {
  std::vector<Access> accesses;
  for (const auto& [begin, range] : ranges_) {
    const bool writes = std::any_of(range.write.begin(), range.write.end(), [](std::uint64_t at) { return at > 0; });
    accesses.push_back({reinterpret_cast<const void*>(begin), range.end - begin, writes});
  }
  return accesses;
}

}  // namespace gradwire::test
