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

  /// Calls `use` with all families, one call at a time. After end() it does nothing, since the job's own objects may be
  /// destroyed by then.
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

  /// Returns the rank that gives the server its port or name: that of this process, or 0 if its ranks are threads.
  [[nodiscard]] static std::optional<int> rank_of(const Aggregate& aggregate);
  /// Keeps an object for ever, because threads of a server may use it until the process ends.
  static void keep(std::shared_ptr<void> object);

 private:
  const std::shared_ptr<Totals> totals_;
  std::timed_mutex making_;  // held while a page is made
  std::atomic<bool> ended_{false};
};

}  // namespace gradwire::watch
