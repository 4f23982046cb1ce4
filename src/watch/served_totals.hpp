// The totals of this process for servers, whose threads may run until the process ends.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "watch/totals.hpp"

namespace gradwire::watch {

/// Any thread may call these functions.
class ServedTotals {
 public:
  explicit ServedTotals(std::shared_ptr<Totals> totals) : totals_(std::move(totals)) {}

  /// Calls `use` with all families, once at a time; not after end(), since the job's own objects may be destroyed then.
  template <typename Use>
  void with_page(Use&& use) {
    const std::lock_guard lock(making_);
    if (!ended_) {
      use(totals_->page());
    }
  }
  /// Waits for a page in the making, but not for ever, since the process ends.
  void end() {
    const std::unique_lock lock(making_, std::chrono::seconds(1));
    ended_ = true;
  }

  /// The rank of this process, whose name its server has: ranks that are threads of one process share that of rank 0.
  [[nodiscard]] static std::optional<int> rank_of(const Aggregate& aggregate);
  /// Keeps an object for ever, since the threads of a server may use it until the process ends.
  static void keep(std::shared_ptr<void> object);

 private:
  const std::shared_ptr<Totals> totals_;
  std::timed_mutex making_;  // held while a page is made
  std::atomic<bool> ended_{false};
};

}  // namespace gradwire::watch
