// Progress coordinates the threads that share a session, and owns its two locks: `state` guards what ready() and
// finish() share, above all the step; the thread that communicates holds `wire`. Never take `wire` while holding
// `state`.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "base/mutex.hpp"
#include "gradwire/threading.hpp"
#include "session/runner/runner.hpp"
#include "session/step/step.hpp"

namespace gradwire::session {

class Progress {
 public:
  /// The work that threads share.
  class Work {
   public:
    /// Starts the buckets that can start and moves those under way. Waits up to `wait` if there is nothing to do.
    /// `waits` says that the caller does nothing else until, for example, the step has ended. Called under `wire`. When
    /// it throws, it has already marked the step as failed.
    virtual void communicate(std::chrono::microseconds wait, bool waits) = 0;
    /// Whether there is work beside the steps, which may outlive a step. Called under `state`.
    [[nodiscard]] virtual bool in_background() const = 0;
    /// Whether a call of finish() is likely to follow the last bucket at once and to reduce it. Called under `state`.
    [[nodiscard]] virtual bool last_awaits_caller() const = 0;
    /// Whether finish() reduces all buckets itself. Called under `state`.
    [[nodiscard]] virtual bool all_await_caller() const = 0;

   protected:
    ~Work() = default;
  };

  /// `step` must outlive this object. `binds`: the progress thread runs where memory::own_placement() says.
  Progress(Threading threading, Step& step, bool binds) : threading_(threading), binds_(binds), step_(step) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { stop(); }

  /// Threads do `work` from now on; Threading::background starts a progress thread for it. Must precede all calls that
  /// communicate; `work` must exist until stop().
  void start(Work& work);
  /// Ends the progress thread once nothing is in the background. `first` runs after the thread has been told to stop.
  void stop(const std::function<void()>& first = {});

  [[nodiscard]] bool background() const noexcept { return threading_ == Threading::background; }
  /// Whether this thread may communicate in a session without a progress thread.
  [[nodiscard]] bool may_communicate() const noexcept;
  /// Throws Error(invalid_argument), which names `call`, if this thread must not communicate.
  void require_communication(const char* call) const;
  [[nodiscard]] bool is_progress_thread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }

  /// Communicates, or waits for the thread that does, until `reached` returns true; it is called with `state` held.
  /// Throws the step's failure.
  template <typename Reached>
  void wait_until(const char* call, Reached&& reached);
  /// If no thread is in drive() and `may` returns true, communicates once by calling `body`, and then calls `after`.
  /// `may` and `after` run with `state` held, `body` with `wire` held. Returns whether it communicated.
  template <typename May, typename Body, typename After>
  bool drive_once(May&& may, Body&& body, After&& after);
  /// Communicates a little inside a call that does something else, if there is no progress thread and `wire` is free.
  void inside_call();
  /// Wakes the progress thread after ready(), unless finish() is likely to do the work.
  void wake_after_ready() REQUIRES(state);
  /// Wakes the progress thread for a caller that asks for a result and does other things meanwhile.
  void wake() REQUIRES(state) { wake_.notify_all(); }
  /// Wakes the callers that wait, because something has ended or failed.
  void changed() REQUIRES(state) {
    if (waiting_ > 0) {
      changed_.notify_all();
    }
  }

  mutable Mutex state;
  Mutex wire ACQUIRED_BEFORE(state);

 private:
  using Clock = std::chrono::steady_clock;

  void run() noexcept;
  void await_work() REQUIRES(state);
  [[nodiscard]] bool has_work() const REQUIRES(state) { return step_.has_work(Clock::now()) || work_->in_background(); }
  /// Communicates until `stop` returns true, without sleeping for `eager` after each bucket, and releases `state` while
  /// it communicates. No other thread may be in drive().
  template <typename Stop>
  void drive(std::chrono::microseconds eager, Stop&& stop) REQUIRES(state);

  static constexpr std::chrono::microseconds kPatience{200};  // drive() sleeps at most this long between two looks

  Threading threading_;
  bool binds_;
  Step& step_;
  Work* work_ = nullptr;
  std::thread::id owner_ = std::this_thread::get_id();
  CondVar changed_;                    // wakes callers
  CondVar wake_;                       // wakes the progress thread
  int waiting_ GUARDED_BY(state) = 0;  // callers that wait for changed_
  bool stopping_ GUARDED_BY(state) = false;
  bool driven_ GUARDED_BY(state) = false;  // a thread is in drive()
  bool looks_ GUARDED_BY(state) = false;   // the progress thread polls for work and need not be woken
  std::thread thread_;
};

template <typename Reached>
void Progress::wait_until(const char* call, Reached&& reached) {
  if (!background()) {
    require_communication(call);
  }
  const MutexLock lock(state);
  for (;;) {
    step_.faults.throw_if_failed();
    if (reached()) {
      return;
    }
    if (driven_) {
      ++waiting_;
      changed_.wait(state);
      --waiting_;
    } else {
      drive(kEager, [&] { return step_.faults.failed() || reached(); });
    }
  }
}

template <typename May, typename Body, typename After>
bool Progress::drive_once(May&& may, Body&& body, After&& after) {
  const MutexLock lock(state);
  if (driven_ || !may()) {
    return false;
  }
  driven_ = true;
  try {
    const MutexUnlock meanwhile(state);
    const MutexLock wire_lock(wire);
    body();
  } catch (...) {
    driven_ = false;
    changed();
    throw;
  }
  driven_ = false;
  after();
  changed();
  return true;
}

template <typename Stop>
void Progress::drive(std::chrono::microseconds eager, Stop&& stop) {
  driven_ = true;
  try {
    std::size_t ended = step_.buckets.ended();
    unsigned looked = 0;
    for (Clock::time_point polite = Clock::now() + eager; !stop();) {
      {
        const MutexUnlock meanwhile(state);
        const bool sleeps = eager.count() == 0 || Clock::now() > polite;
        {
          const MutexLock wire_lock(wire);
          work_->communicate(sleeps ? kPatience : std::chrono::microseconds(0), eager.count() > 0);
        }
        if (!sleeps && ++looked % kLooksToYield == 0) {
          std::this_thread::yield();
        }
      }
      if (step_.buckets.ended() != ended) {
        ended = step_.buckets.ended();
        polite = Clock::now() + eager;
      }
    }
  } catch (...) {
    driven_ = false;
    changed_.notify_all();
    throw;
  }
  driven_ = false;
  changed_.notify_all();
  if (background() && (has_work() || step_.startable())) {
    wake_.notify_all();
  }
}

}  // namespace gradwire::session
