// The threads that share a session, and its two locks: `state` guards what ready() and finish() share, the step first
// of all; `wire` is held by whoever communicates. Never take `wire` while holding `state`.
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
  /// What there is to do.
  class Work {
   public:
    /// Starts what can start and moves what is under way, for up to `wait` where nothing can be done. `waits`: the
    /// caller does nothing else until the step has ended, or so. Called under `wire`. What it throws has made the step
    /// fail.
    virtual void communicate(std::chrono::microseconds wait, bool waits) = 0;
    /// Whether there is work beside the steps, which outlives them. Called under `state`.
    [[nodiscard]] virtual bool in_background() const = 0;
    /// finish() is likely to come at once for the last bucket, and reduces it itself. Called under `state`.
    [[nodiscard]] virtual bool last_awaits_caller() const = 0;
    /// It does so for all buckets. Called under `state`.
    [[nodiscard]] virtual bool all_await_caller() const = 0;

   protected:
    ~Work() = default;
  };

  /// `step` outlives this.
  Progress(Threading threading, Step& step) : threading_(threading), step_(step) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { stop(); }

  /// From now on `work` is done, by a thread of the library too where it has one. Comes before all calls that
  /// communicate; `work` is there until stop().
  void start(Work& work);
  /// Ends that thread once nothing is in the background; `first` runs after it has been told so.
  void stop(const std::function<void()>& first = {});

  [[nodiscard]] bool background() const noexcept { return threading_ == Threading::background; }
  /// Without a progress thread: whether this thread may communicate.
  [[nodiscard]] bool may_communicate() const noexcept;
  /// Error(invalid_argument), which names `call`, where this thread must not.
  void require_communication(const char* call) const;
  [[nodiscard]] bool is_progress_thread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }

  /// Communicates, or waits for the thread that does, until `reached` (called with `state` held). Throws the step's
  /// failure.
  template <typename Reached>
  void wait_until(const char* call, Reached&& reached);
  /// Where nobody drives and `may` (called with `state` held): communicates once, by `body` (with `wire` held), and
  /// then calls `after` (with `state` held). Returns whether it did.
  template <typename May, typename Body, typename After>
  bool drive_once(May&& may, Body&& body, After&& after);
  /// Where there is no progress thread: a call that does something else moves what it can.
  void inside_call();
  /// After ready().
  void wake_after_ready() REQUIRES(state);
  /// Somebody asks for a result, and does other things meanwhile.
  void wake() REQUIRES(state) { wake_.notify_all(); }
  /// Something has ended or failed.
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
  /// Communicates until `stop`, for `eager` after each bucket without sleeping; gives `state` back while that goes on.
  /// Where nobody drives.
  template <typename Stop>
  void drive(std::chrono::microseconds eager, Stop&& stop) REQUIRES(state);

  static constexpr std::chrono::microseconds kPatience{200};  // of whoever drives, before it looks for new buckets

  Threading threading_;
  Step& step_;
  Work* work_ = nullptr;
  std::thread::id owner_ = std::this_thread::get_id();
  CondVar changed_;                    // for callers
  CondVar wake_;                       // for the progress thread
  int waiting_ GUARDED_BY(state) = 0;  // for it
  bool stopping_ GUARDED_BY(state) = false;
  bool driven_ GUARDED_BY(state) = false;  // a thread is in drive()
  bool looks_ GUARDED_BY(state) = false;   // the progress thread looks for work, and need not be woken
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
