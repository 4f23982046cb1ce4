// What observe has once a process, and what a fork does to it. Inside of observe.
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
  const Process* parents = nullptr;  // of the process that this one forked off from

  std::mutex sources_mutex;  // of what follows
  std::vector<Source> sources;
  SourceId first_source = 0;  // its number
  std::vector<Snapshot> snapshots;

  std::mutex control;  // of who adds and removes sinks; taken before `work`
  std::thread thread;

  std::mutex wake_mutex;  // of what follows
  std::condition_variable wake;
  bool stopping = false;

  std::mutex work;  // of a round, and of what follows
  std::vector<std::shared_ptr<Sink>> sinks;
  CollectorOptions options;
  std::optional<Calibration> calibration;
  std::uint64_t recorded = 0;
  std::atomic<double> collector_seconds{0};
};

/// Never destroyed: threads record until the very end. A child that forks off gets its own at its first use, and leaves
/// its parent's alone, whose locks may be held by threads that it does not have.
[[nodiscard]] Process& process();

/// Of the thread that forked.
void forget_ring_after_fork() noexcept;

}  // namespace gradwire::observe::detail
