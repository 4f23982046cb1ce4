#include "plugins/nccl_preload/timing.hpp"

#include <utility>

#include "base/elapsed.hpp"
#include "choice/auto_call.hpp"
#include "plugins/nccl_preload/driver_events.hpp"

namespace gradwire::nccl_preload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostPending = 64;
constexpr std::uint64_t kAlwaysTimed = 16;  // calls, so that a short job has times, too
constexpr double kShare = 5e-3;             // of the run, for timing

void destroy(const CallTimer::Running& running) noexcept {
  for (CUevent event : {running.begin, running.end}) {
    if (event != nullptr) {
      driver_events().destroy(event);
    }
  }
}

drop_in::ObservedClass class_of(const TimedCall& call) {
  return {.function = call.what.function,
          .dtype = call.what.dtype.value_or(DType::f32),
          .size = choice::size_class(call.bytes),
          .communicator_size = call.what.communicator_size};
}

}  // namespace

bool CallTimer::affordable() const {
  return pending_.size() < kMostPending && (timed_ < kAlwaysTimed || cost_seconds_ < kShare * seconds_since(made_));
}

std::optional<CallTimer::Running> CallTimer::begin(const TimedCall& call) noexcept {
  try {
    if (!driver_events().complete()) {
      return std::nullopt;
    }
    const MutexLock lock(mutex_);
    const Clock::time_point start = Clock::now();
    const CaptureExempt exempt;
    collect_locked();
    if (!affordable()) {
      return std::nullopt;
    }
    Running running{.call = call};
    if (driver_events().create(&running.begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        driver_events().create(&running.end, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        driver_events().record(running.begin, reinterpret_cast<CUstream>(call.stream)) != CUDA_SUCCESS) {
      destroy(running);  // this thread has no context, or the stream is of another context
      return std::nullopt;
    }
    ++timed_;
    cost_seconds_ += seconds_since(start);
    return running;
  } catch (...) {  // out of memory
    return std::nullopt;
  }
}

void CallTimer::end(Running running, bool well) noexcept {
  try {
    const MutexLock lock(mutex_);
    const Clock::time_point start = Clock::now();
    const CaptureExempt exempt;
    if (!well || driver_events().record(running.end, reinterpret_cast<CUstream>(running.call.stream)) != CUDA_SUCCESS) {
      destroy(running);
    } else {
      pending_.push_back(std::move(running));
    }
    cost_seconds_ += seconds_since(start);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; two events are lost
  }
}

void CallTimer::collect() noexcept {
  try {
    const MutexLock lock(mutex_);
    if (!pending_.empty()) {
      const CaptureExempt exempt;
      collect_locked();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory
  }
}

// Calls of different streams end in any order. One that is not ready delays the reading of those behind it, which costs
// nothing.
void CallTimer::collect_locked() {
  while (!pending_.empty()) {
    const Running& first = pending_.front();
    const CUresult state = driver_events().query(first.end);
    if (state == CUDA_ERROR_NOT_READY) {
      return;
    }
    float milliseconds = 0;
    if (state == CUDA_SUCCESS && driver_events().elapsed(&milliseconds, first.begin, first.end) == CUDA_SUCCESS) {
      const double seconds = milliseconds / 1e3;
      ledger_.add(first.call.what, {.seconds = seconds});
      observation_.note(class_of(first.call), first.call.bytes, seconds);
    }
    destroy(first);
    pending_.pop_front();
  }
}

}  // namespace gradwire::nccl_preload
