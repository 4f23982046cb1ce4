#include "plugins/nccl_preload/timing.hpp"

#include <dlfcn.h>

#include <utility>

#include "base/elapsed.hpp"
#include "choice/auto_call.hpp"

namespace gradwire::nccl_preload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostPending = 64;
constexpr std::uint64_t kAlwaysTimed = 16;  // calls, so that a short job has times, too
constexpr double kShare = 5e-3;             // of the run, for timing

// The driver exports these names with these signatures since the first CUDA; the header may map them to newer ones.
struct Driver {
  CUresult (*create)(CUevent*, unsigned int) = nullptr;
  CUresult (*record)(CUevent, CUstream) = nullptr;
  CUresult (*query)(CUevent) = nullptr;
  CUresult (*elapsed)(float*, CUevent, CUevent) = nullptr;
  CUresult (*destroy)(CUevent) = nullptr;
  CUresult (*exchange_capture_mode)(CUstreamCaptureMode*) = nullptr;

  [[nodiscard]] bool complete() const noexcept {
    return create != nullptr && record != nullptr && query != nullptr && elapsed != nullptr && destroy != nullptr;
  }
};

const Driver& driver() noexcept {
  static const Driver found = [] {
    Driver loaded;
    const auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(driver_function(name));
    };
    find(loaded.create, "cuEventCreate");
    find(loaded.record, "cuEventRecord");
    find(loaded.query, "cuEventQuery");
    find(loaded.elapsed, "cuEventElapsedTime");
    find(loaded.destroy, "cuEventDestroy_v2");
    find(loaded.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
    return loaded;
  }();
  return found;
}

// Keeps a capture by another thread from failing because this thread queries an event.
class Relaxed {
 public:
  Relaxed() noexcept { exchange(); }
  ~Relaxed() { exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  void exchange() noexcept {
    if (driver().exchange_capture_mode != nullptr) {
      driver().exchange_capture_mode(&mode_);
    }
  }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

void destroy(const CallTimer::Running& running) noexcept {
  for (CUevent event : {running.begin, running.end}) {
    if (event != nullptr) {
      driver().destroy(event);
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

void* driver_function(const char* name) noexcept {
  if (void* found = dlsym(RTLD_DEFAULT, name); found != nullptr) {
    return found;
  }
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver != nullptr ? dlsym(driver, name) : nullptr;
}

bool CallTimer::affordable() const {
  return pending_.size() < kMostPending && (timed_ < kAlwaysTimed || cost_seconds_ < kShare * seconds_since(made_));
}

std::optional<CallTimer::Running> CallTimer::begin(const TimedCall& call) noexcept {
  try {
    if (!driver().complete()) {
      return std::nullopt;
    }
    const MutexLock lock(mutex_);
    const Clock::time_point start = Clock::now();
    const Relaxed relaxed;
    collect_locked();
    if (!affordable()) {
      return std::nullopt;
    }
    Running running{.call = call};
    if (driver().create(&running.begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        driver().create(&running.end, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        driver().record(running.begin, reinterpret_cast<CUstream>(call.stream)) != CUDA_SUCCESS) {
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
    const Relaxed relaxed;
    if (!well || driver().record(running.end, reinterpret_cast<CUstream>(running.call.stream)) != CUDA_SUCCESS) {
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
      const Relaxed relaxed;
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
    const CUresult state = driver().query(first.end);
    if (state == CUDA_ERROR_NOT_READY) {
      return;
    }
    float milliseconds = 0;
    if (state == CUDA_SUCCESS && driver().elapsed(&milliseconds, first.begin, first.end) == CUDA_SUCCESS) {
      const double seconds = milliseconds / 1e3;
      ledger_.add(first.call.what, {.seconds = seconds});
      observation_.note(class_of(first.call), first.call.bytes, seconds);
    }
    destroy(first);
    pending_.pop_front();
  }
}

}  // namespace gradwire::nccl_preload
