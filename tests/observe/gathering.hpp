// Defines a sink that keeps everything while the object lives.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "observe/collector.hpp"

namespace gradwire::observe::test {

class Kept final : public Sink {
 public:
  struct Seen {
    std::uint32_t thread;
    Event event;
  };

  void take(const Round& round) override {
    const std::lock_guard lock(mutex_);
    for (const Stretch& stretch : round.stretches) {
      for (const Event& event : stretch.events) {
        seen_.push_back({stretch.thread, event});
      }
    }
    snapshots_.insert(snapshots_.end(), round.snapshots.begin(), round.snapshots.end());
    scale_ = round.scale;
    recorded_ = round.recorded;
    dropped_ = round.dropped;
    ended_ = ended_ || round.last;
    ++rounds_;
    std::this_thread::sleep_for(delay.load());
  }

  [[nodiscard]] std::vector<Seen> seen() const { return locked(seen_); }
  [[nodiscard]] std::vector<Snapshot> snapshots() const { return locked(snapshots_); }
  [[nodiscard]] TimeScale scale() const { return locked(scale_); }
  [[nodiscard]] std::uint64_t recorded() const { return locked(recorded_); }
  [[nodiscard]] std::uint64_t dropped() const { return locked(dropped_); }
  [[nodiscard]] bool ended() const { return locked(ended_); }
  [[nodiscard]] int rounds() const { return locked(rounds_); }

  std::atomic<std::chrono::milliseconds> delay{std::chrono::milliseconds(0)};  // of every round

 private:
  template <typename T>
  T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::vector<Seen> seen_;
  std::vector<Snapshot> snapshots_;
  TimeScale scale_;
  std::uint64_t recorded_ = 0;
  std::uint64_t dropped_ = 0;
  bool ended_ = false;
  int rounds_ = 0;
};

/// Rounds happen only when collect() is called, and at the end.
inline const CollectorOptions kByHand{.interval = std::chrono::hours(1), .ring_events = 1024};

/// Observes until the end of the scope.
class Observed {
 public:
  explicit Observed(const CollectorOptions& options = {}) : kept(std::make_shared<Kept>()) { add_sink(kept, options); }
  ~Observed() { stop(); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  void stop() { remove_sink(kept); }

  const std::shared_ptr<Kept> kept;
};

}  // namespace gradwire::observe::test
