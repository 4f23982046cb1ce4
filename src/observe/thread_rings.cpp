#include "observe/thread_rings.hpp"

#include <algorithm>

#include "observe/process_state.hpp"
#include "observe/record.hpp"

namespace gradwire::observe::detail {

std::atomic<ClockKind> g_clock{ClockKind::none};

namespace {

// These are pointers, which need no initialisation: thread-local data of a library that is loaded late must be small.
thread_local ThreadRing* t_ring = nullptr;
thread_local bool t_ends = false;

// Marks the ring of a thread as ended. It takes no lock, since the thread may be one of a forked child, in which locks
// of the parent are never released.
struct EndsRing {
  ~EndsRing() {
    t_ends = true;
    if (t_ring != nullptr) {
      t_ring->ended.store(true, std::memory_order_release);
      t_ring = nullptr;
    }
  }
};

ThreadRing* make_ring() noexcept {
  if (t_ends) {  // the end of a new ring would not be marked any more
    return nullptr;
  }
  try {
    t_ring = rings().make();
  } catch (...) {
    return nullptr;
  }
  static thread_local const EndsRing at_the_end_of_the_thread;
  return t_ring;
}

}  // namespace

void record_now(const Event& event) noexcept {
  ThreadRing* ring = t_ring;
  if (ring == nullptr) [[unlikely]] {
    ring = make_ring();
    if (ring == nullptr) {
      rings().count_lost();
      return;
    }
  }
  ring->ring.push(event);
}

void forget_ring_after_fork() noexcept { t_ring = nullptr; }

ThreadRing* ThreadRings::make() {
  const MutexLock lock(mutex_);
  rings_.push_back(std::make_unique<ThreadRing>(events_, next_));
  ++next_;
  return rings_.back().get();
}

std::vector<ThreadRing*> ThreadRings::all() {
  const MutexLock lock(mutex_);
  std::vector<ThreadRing*> all;
  all.reserve(rings_.size());
  for (const auto& ring : rings_) {
    all.push_back(ring.get());
  }
  return all;
}

void ThreadRings::forget_ended() {
  const MutexLock lock(mutex_);
  std::erase_if(rings_, [this](const auto& ring) REQUIRES(mutex_) {
    // The order matters: everything that the thread wrote before its end is visible then.
    const bool gone = ring->ended.load(std::memory_order_acquire) && ring->ring.peek()[0].empty();
    dropped_by_gone_ += gone ? ring->ring.dropped() : 0;
    return gone;
  });
}

void ThreadRings::clear(std::size_t events) {
  for (ThreadRing* ring : all()) {
    const auto parts = ring->ring.peek();
    ring->ring.release(parts[0].size() + parts[1].size());
  }
  forget_ended();
  const MutexLock lock(mutex_);
  events_ = events;
  dropped_before_ = dropped_in_all();
}

std::uint64_t ThreadRings::dropped() {
  const MutexLock lock(mutex_);
  return dropped_in_all() - dropped_before_;
}

std::uint64_t ThreadRings::dropped_in_all() const {
  std::uint64_t dropped = dropped_by_gone_ + lost_.load(std::memory_order_relaxed);
  for (const auto& ring : rings_) {
    dropped += ring->ring.dropped();
  }
  return dropped;
}

}  // namespace gradwire::observe::detail
