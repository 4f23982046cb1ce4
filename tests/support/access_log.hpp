// Checks that events order the accesses of a device's queues to the same memory, with vector clocks over address
// ranges. An operation that conflicts with another queue's, with no event between them, is an error when it is
// enqueued, whatever order both would run in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace gradwire::test {

/// An access of an operation to memory.
struct Access {
  const void* memory = nullptr;  // null: no access
  std::uint64_t bytes = 0;
  bool writes = false;
};

class AccessLog {
 public:
  /// For each queue, the number of its operations that come before.
  using Clock = std::vector<std::uint64_t>;

  /// Queues are numbered in the order of their names here.
  explicit AccessLog(std::vector<std::string> queues);

  /// Adds the next operation of `queue`. If no event orders it, Error(internal) names both operations.
  void add(std::size_t queue, const std::string& what, std::span<const Access> accesses);
  /// Returns the operations that come before an event that is recorded now.
  [[nodiscard]] const Clock& now(std::size_t queue) const { return clocks_.at(queue); }
  /// The next operations of `queue` come after an event.
  void wait(std::size_t queue, const Clock& event);
  /// The host has waited: everything that is enqueued from now on comes after the event.
  void wait_on_host(const Clock& event);
  /// Returns whether all added operations come before the next operation of `queue`.
  [[nodiscard]] bool knows_all(std::size_t queue) const;
  /// Returns everything that was touched, as the accesses of one operation.
  [[nodiscard]] std::vector<Access> all() const;

 private:
  struct Range {
    std::uintptr_t end;
    Clock read;   // by queue, its last operation that read; 0: none
    Clock write;  // by queue, its last operation that wrote
  };
  using Ranges = std::map<std::uintptr_t, Range>;

  Ranges::iterator cut(std::uintptr_t address);
  void touch(std::size_t queue, const Access& access);
  void check(std::size_t queue, const Range& range, bool writes) const;

  std::vector<std::string> queues_;
  std::vector<Clock> clocks_;                    // by queue
  std::vector<std::vector<std::string>> names_;  // by queue and operation
  Ranges ranges_;                                // by first address; no two overlap
};

}  // namespace gradwire::test
