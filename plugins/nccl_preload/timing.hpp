// How long calls of an observing job take on the device: two events on the call's own stream, read later, when they are
// ready. Nothing waits for the device, nothing is recorded during a capture, and no memory of the job is looked at.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/mutex.hpp"
#include "drop_in/ledger.hpp"
#include "drop_in/observation.hpp"
#include "plugins/nccl_preload/driver_events.hpp"

namespace gradwire::nccl_preload {

/// A call that is to be timed, described as the ledger counted it.
struct TimedCall {
  drop_in::CallClass what;
  std::uint64_t bytes = 0;
  cudaStream_t stream = nullptr;
};

/// Any thread may call it.
class CallTimer {
 public:
  CallTimer(drop_in::Ledger& ledger, drop_in::Observation& observation) : ledger_(ledger), observation_(observation) {}
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  struct Running {
    TimedCall call;
    drop_in::DeviceClock::Mark begin = 0;
    drop_in::DeviceClock::Mark end = 0;
  };
  /// To be called before the call is enqueued. Returns no value if there is no driver, if timing costs too much, or if
  /// too many earlier calls are still running.
  [[nodiscard]] std::optional<Running> begin(const TimedCall& call) noexcept;
  /// To be called after the call was enqueued. It is not timed unless that went `well`.
  void end(Running running, bool well) noexcept;
  /// Reads the events that are ready.
  void collect() noexcept;

 private:
  void collect_locked() REQUIRES(mutex_);
  [[nodiscard]] bool affordable() const REQUIRES(mutex_);

  drop_in::Ledger& ledger_;
  drop_in::Observation& observation_;
  const std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
  Mutex mutex_;
  EventClock clock_ GUARDED_BY(mutex_);
  std::deque<Running> pending_ GUARDED_BY(mutex_);  // in the order in which they were enqueued
  std::uint64_t timed_ GUARDED_BY(mutex_) = 0;
  double cost_seconds_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gradwire::nccl_preload
