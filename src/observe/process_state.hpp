// The state of observe in a process, and its handling of forks. Internal to observe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "observe/collector.hpp"
#include "observe/thread_rings.hpp"

namespace gradwire::observe::detail {

struct ProcessState {
  ThreadRings rings;
  const ProcessState* parents = nullptr;  // the object of the process from which this one forked

  Mutex sources_mutex;
  std::vector<Source> sources GUARDED_BY(sources_mutex);
  SourceId first_source GUARDED_BY(sources_mutex) = 0;  // number of the first source
  std::vector<Snapshot> snapshots GUARDED_BY(sources_mutex);

  Mutex work;  // held during a round
  std::vector<std::shared_ptr<Sink>> sinks GUARDED_BY(work);
  CollectorOptions options GUARDED_BY(work);
  std::optional<Calibration> calibration GUARDED_BY(work);
  std::uint64_t recorded GUARDED_BY(work) = 0;

  Mutex control ACQUIRED_BEFORE(work);  // held while sinks are added or removed
  std::thread thread GUARDED_BY(control);

  Mutex wake_mutex;
  CondVar wake;
  bool stopping GUARDED_BY(wake_mutex) = false;

  std::atomic<double> collector_seconds{0};
};

/// The object of this process. It is never destroyed, since threads record until the very end. A forked child gets its
/// own at its first use, and does not touch its parent's, whose locks may be held by threads that the child lacks.
[[nodiscard]] ProcessState& process();

/// Drops the ring of the thread that forked.
void forget_ring_after_fork() noexcept;

}  // namespace gradwire::observe::detail
