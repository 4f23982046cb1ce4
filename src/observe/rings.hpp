// The rings of all threads of this process. Inside of observe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "observe/ring.hpp"

namespace gradwire::observe::detail {

/// A thread's ring. Its thread may be gone while the reader has not seen all.
struct ThreadRing {
  ThreadRing(std::size_t events, std::uint32_t of) : ring(events), thread(of) {}
  Ring ring;
  const std::uint32_t thread;
  std::atomic<bool> ended{false};
};

class Rings {
 public:
  /// A ring for the calling thread. std::bad_alloc.
  ThreadRing* make();
  /// Those that there are. They stay until the reader calls forget_ended() or clear().
  [[nodiscard]] std::vector<ThreadRing*> all();
  /// Of threads that are gone and whose events were all read.
  void forget_ended();
  /// Forgets what they hold; rings made from now on have that size.
  void clear(std::size_t events);
  /// Since clear().
  [[nodiscard]] std::uint64_t dropped();
  /// An event for which there was no ring: no memory, or its thread is about to be gone.
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

/// Of this process: a child that forks off gets another one, empty, and never touches its parent's.
[[nodiscard]] Rings& rings();

}  // namespace gradwire::observe::detail
