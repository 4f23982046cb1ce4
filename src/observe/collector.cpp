#include "observe/collector.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX's clocks and local time

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "base/current_error.hpp"
#include "base/log.hpp"
#include "observe/process_state.hpp"
#include "observe/record.hpp"

namespace gradwire::observe {
namespace {

using detail::ProcessState;
using detail::ThreadRing;

double thread_seconds() noexcept {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// Keeps this library loaded. Unloading it would end the thread from a destructor, under a lock of the loader that the
// thread may need.
void stay_loaded() noexcept {
  static const bool done = [] {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(&stay_loaded), &info) != 0 && info.dli_fname != nullptr) {
      // The program itself is not found by its name, but stays loaded anyway.
      static_cast<void>(::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
    }
    return true;
  }();
  static_cast<void>(done);
}

// The sinks for which a round is the last one.
struct Leaving {
  bool all = false;
  const Sink* one = nullptr;
  [[nodiscard]] bool has(const Sink* sink) const noexcept { return all || sink == one; }
};

void hand_over(std::vector<std::shared_ptr<Sink>>& sinks, Round& round, const Leaving& leaving) noexcept {
  std::erase_if(sinks, [&](const std::shared_ptr<Sink>& sink) {
    round.last = leaving.has(sink.get());
    try {
      sink->take(round);
      return round.last || sink->done();
    } catch (...) {
      tell_failure();
      return true;
    }
  });
  if (sinks.empty()) {
    detail::g_clock.store(ClockKind::none, std::memory_order_relaxed);
  }
}

// The events and snapshots that are there, and for each ring the number of events.
struct Gathered {
  std::vector<Snapshot> snapshots;
  std::vector<Stretch> stretches;
  std::vector<std::pair<ThreadRing*, std::size_t>> rings;
};

// Throws std::bad_alloc, and takes nothing from the rings then.
Gathered gather(ProcessState& self) {
  Gathered all;
  for (ThreadRing* ring : self.rings.all()) {
    std::size_t seen = 0;
    for (const std::span<const Event> part : ring->ring.peek()) {
      if (!part.empty()) {
        all.stretches.push_back({ring->thread, part});
        seen += part.size();
      }
    }
    all.rings.emplace_back(ring, seen);
  }
  const MutexLock lock(self.sources_mutex);
  all.snapshots.swap(self.snapshots);
  return all;
}

// Without memory a round is left out, and the next one has all events; a last one comes empty.
void make_round(ProcessState& self, const Leaving& leaving = {}) noexcept REQUIRES(self.work) {
  if (self.sinks.empty()) {
    return;
  }
  Gathered all;
  try {
    all = gather(self);
  } catch (...) {
    if (!leaving.all && leaving.one == nullptr) {
      return;
    }
  }
  Round round{.clock = self.options.clock, .scale = self.calibration->scale()};
  for (const auto& [ring, seen] : all.rings) {
    self.recorded += seen;
    round.ring_bytes += ring->ring.size() * sizeof(Event);
  }
  round.stretches = all.stretches;
  round.snapshots = all.snapshots;
  round.recorded = self.recorded;
  round.dropped = self.rings.dropped();
  round.collector_seconds = self.collector_seconds.load(std::memory_order_relaxed);
  hand_over(self.sinks, round, leaving);
  for (const auto& [ring, seen] : all.rings) {
    ring->ring.release(seen);
  }
  self.rings.forget_ended();
}

void run(ProcessState& self) {
  std::chrono::milliseconds interval;
  {
    const MutexLock lock(self.work);
    interval = self.options.interval;
  }
  const MutexLock lock(self.wake_mutex);
  while (!self.wake.wait_for(self.wake_mutex, interval, [&]() REQUIRES(self.wake_mutex) { return self.stopping; })) {
    const MutexUnlock meanwhile(self.wake_mutex);
    {
      const MutexLock work(self.work);
      make_round(self);
    }
    self.collector_seconds.store(thread_seconds(), std::memory_order_relaxed);
  }
}

// Starts the collector's thread, which handles no signal of the job.
void start_thread(ProcessState& self) REQUIRES(self.control) {
  stay_loaded();
  {
    const MutexLock lock(self.wake_mutex);
    self.stopping = false;
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    self.thread = std::thread([&self] { run(self); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_setname_np(self.thread.native_handle(), "gradwire-events");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void stop_thread(ProcessState& self) REQUIRES(self.control) {
  {
    const MutexLock lock(self.wake_mutex);
    self.stopping = true;
  }
  self.wake.notify_all();
  if (self.thread.joinable()) {
    self.thread.join();
  }
}

void leave(ProcessState& self, const Leaving& leaving) REQUIRES(self.control) {
  bool last = false;
  {
    const MutexLock lock(self.work);
    last = std::all_of(self.sinks.begin(), self.sinks.end(), [&](const auto& sink) { return leaving.has(sink.get()); });
    if (last) {
      detail::g_clock.store(ClockKind::none, std::memory_order_relaxed);
    }
    make_round(self, leaving);
  }
  if (last) {
    stop_thread(self);
  }
}

struct StopsAtExit {
  ~StopsAtExit() { stop_collecting(); }
};

}  // namespace

void tell_failure() noexcept {
  try {
    log(LogLevel::warning, "observation: an exporter failed and gets no more: " + std::string(current_error().what()));
  } catch (...) {  // NOLINT(bugprone-empty-catch): without memory it cannot be logged
  }
}

void add_sink(std::shared_ptr<Sink> sink, const CollectorOptions& options) {
  static const StopsAtExit at_exit;
  ProcessState& self = detail::process();
  const MutexLock control(self.control);
  bool first = false;
  {
    const MutexLock lock(self.work);
    first = self.sinks.empty();
    if (first) {
      self.options = options;
      self.calibration.emplace(options.clock);
      self.recorded = 0;
      self.collector_seconds.store(0, std::memory_order_relaxed);
      self.rings.clear(options.ring_events);
    }
    self.sinks.push_back(std::move(sink));
  }
  if (first) {
    stop_thread(self);  // still runs where all sinks have failed
    try {
      start_thread(self);
    } catch (...) {
      const MutexLock lock(self.work);
      self.sinks.clear();
      throw;
    }
    detail::g_clock.store(options.clock, std::memory_order_relaxed);
  }
}

void remove_sink(const std::shared_ptr<Sink>& sink) {
  ProcessState& self = detail::process();
  const MutexLock control(self.control);
  leave(self, {.one = sink.get()});
}

void collect() {
  ProcessState& self = detail::process();
  const MutexLock lock(self.work);
  make_round(self);
}

void stop_collecting() {
  ProcessState& self = detail::process();
  const MutexLock control(self.control);
  leave(self, {.all = true});
}

}  // namespace gradwire::observe
