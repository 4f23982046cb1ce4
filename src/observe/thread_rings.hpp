// The rings of all threads of this process. Internal to observe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "observe/ring.hpp"

namespace gradwire::observe::detail {

/// A thread's ring. The thread may have ended before the reader has read all its events.
struct ThreadRing {
  ThreadRing(std::size_t events, std::uint32_t of) : ring(events), thread(of) {}
  Ring ring;
  const std::uint32_t thread;
  std::atomic<bool> ended{false};
};

class ThreadRings {
 public:
  /// Makes a ring for the calling thread. Throws std::bad_alloc.
  ThreadRing* make();
  /// All rings. They stay until the reader calls forget_ended() or clear().
  [[nodiscard]] std::vector<ThreadRing*> all();
  /// Removes rings of ended threads whose events were all read.
  void forget_ended();
  /// Drops the events of all rings; later rings have `events` places.
  void clear(std::size_t events);
  /// Number of events that were dropped since clear().
  [[nodiscard]] std::uint64_t dropped();
  /// Counts an event for which there was no ring, for lack of memory or because its thread is about to end.
  void count_lost() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }

 private:
  [[nodiscard]] std::uint64_t dropped_in_all() const REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<std::unique_ptr<ThreadRing>> rings_ GUARDED_BY(mutex_);
  std::size_t events_ GUARDED_BY(mutex_) = kRingEvents;
  std::uint32_t next_ GUARDED_BY(mutex_) = 1;
  std::uint64_t dropped_by_gone_ GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_before_ GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> lost_{0};
};

/// The rings of this process. A forked child gets an empty object of its own, and never touches its parent's.
[[nodiscard]] ThreadRings& rings();

}  // namespace gradwire::observe::detail
