#include "plugins/nccl_preload/timing.hpp"

#include <utility>

#include "base/elapsed.hpp"
#include "choice/auto_call.hpp"

namespace gradwire::nccl_preload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostPending = 64;
constexpr std::uint64_t kAlwaysTimed = 16;  // calls, so that a short job has times, too
constexpr double kShare = 5e-3;             // of the run, for timing

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
    const Running running{.call = call, .begin = clock_.mark(call.stream)};
    if (running.begin == 0) {
      return std::nullopt;  // this thread has no context, or the stream is of another context
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
    running.end = well ? clock_.mark(running.call.stream) : 0;
    if (running.end == 0) {
      clock_.drop(running.begin);
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
  while (!pending_.empty() && clock_.reached(pending_.front().end)) {
    const Running& first = pending_.front();
    if (const auto seconds = clock_.seconds(first.begin, first.end)) {
      ledger_.add(first.call.what, {.seconds = *seconds});
      observation_.note(class_of(first.call), first.call.bytes, *seconds);
    }
    clock_.drop(first.begin);
    clock_.drop(first.end);
    pending_.pop_front();
  }
}

}  // namespace gradwire::nccl_preload
