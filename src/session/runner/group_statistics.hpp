// GroupStatistics holds the statistics of a runner, one for each group of the plan. Any thread may use it.
#pragma once

#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/statistics.hpp"

namespace gradwire::session {

class GroupStatistics {
 public:
  void resize(std::size_t groups) {
    const MutexLock lock(mutex_);
    groups_.resize(groups);
  }
  /// Calls `change` with the statistics of all groups, under the lock.
  template <typename Change>
  void change(Change&& change) {
    const MutexLock lock(mutex_);
    std::forward<Change>(change)(groups_);
  }
  void add(std::size_t group, const Statistics& statistics) {
    change([&](std::vector<Statistics>& groups) { groups[group].add(statistics); });
  }
  /// Returns the statistics since the last reset.
  [[nodiscard]] std::vector<Statistics> groups() const {
    const MutexLock lock(mutex_);
    return groups_;
  }
  /// Returns the sum over all groups and all calls so far, regardless of resets.
  [[nodiscard]] Statistics totals() const {
    const MutexLock lock(mutex_);
    Statistics totals = before_reset_;
    for (const Statistics& group : groups_) {
      totals.add(group);
    }
    return totals;
  }
  void reset() {
    change([this](std::vector<Statistics>& groups) {
      mutex_.assert_held();
      for (Statistics& group : groups) {
        before_reset_.add(std::exchange(group, {}));
      }
    });
  }

 private:
  mutable Mutex mutex_;
  std::vector<Statistics> groups_ GUARDED_BY(mutex_);
  Statistics before_reset_ GUARDED_BY(mutex_);  // the sum over all groups until the last reset
};

}  // namespace gradwire::session
