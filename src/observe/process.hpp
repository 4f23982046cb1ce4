// What observe has once a process, and what a fork does to it. Inside of observe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "observe/collector.hpp"
#include "observe/rings.hpp"

namespace gradwire::observe::detail {

struct Process {
  Rings rings;
  const Process* parents = nullptr;  // of the process that this one forked off from

  Mutex sources_mutex;
  std::vector<Source> sources GUARDED_BY(sources_mutex);
  SourceId first_source GUARDED_BY(sources_mutex) = 0;  // its number
  std::vector<Snapshot> snapshots GUARDED_BY(sources_mutex);

  Mutex work;  // held during a round
  std::vector<std::shared_ptr<Sink>> sinks GUARDED_BY(work);
  CollectorOptions options GUARDED_BY(work);
  std::optional<Calibration> calibration GUARDED_BY(work);
  std::uint64_t recorded GUARDED_BY(work) = 0;

  Mutex control ACQUIRED_BEFORE(work);  // held by a thread that adds or removes sinks
  std::thread thread GUARDED_BY(control);

  Mutex wake_mutex;
  CondVar wake;
  bool stopping GUARDED_BY(wake_mutex) = false;

  std::atomic<double> collector_seconds{0};
};

/// Never destroyed: threads record until the very end. A child that forks off gets its own at its first use, and leaves
/// its parent's alone, whose locks may be held by threads that it does not have.
[[nodiscard]] Process& process();

/// Of the thread that forked.
void forget_ring_after_fork() noexcept;

}  // namespace gradwire::observe::detail
