// The state of observe in a process, and its handling of forks. Internal to observe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "observe/collector.hpp"
#include "observe/rings.hpp"

namespace gradwire::observe::detail {

struct Process {
  Rings rings;
  const Process* parents = nullptr;  // the object of the process from which this one forked

  std::mutex sources_mutex;  // guards the members up to the next mutex
  std::vector<Source> sources;
  SourceId first_source = 0;  // number of the first source
  std::vector<Snapshot> snapshots;

  std::mutex control;  // held while sinks are added or removed; taken before `work`
  std::thread thread;

  std::mutex wake_mutex;  // guards the members up to the next mutex
  std::condition_variable wake;
  bool stopping = false;

  std::mutex work;  // held during a round; guards the members below
  std::vector<std::shared_ptr<Sink>> sinks;
  CollectorOptions options;
  std::optional<Calibration> calibration;
  std::uint64_t recorded = 0;
  std::atomic<double> collector_seconds{0};
};

/// The object of this process. It is never destroyed, since threads record until the very end. A forked child gets its
/// own at its first use, and does not touch its parent's, whose locks may be held by threads that the child lacks.
[[nodiscard]] Process& process();

/// Drops the ring of the thread that forked.
void forget_ring_after_fork() noexcept;

}  // namespace gradwire::observe::detail
