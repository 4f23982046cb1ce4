// A thread that makes the calls of one communicator one after another, in the order in which they were posted. It makes
// the calls that return a request. All ranks post the same calls in the same order, so each call ends; each
// communicator has its own queue, since ranks may post on two of them in different orders.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.hpp"

namespace gradwire::drop_in {

class CallQueue {
 public:
  /// Must not throw. After it has reported its end, it must not use memory of its caller.
  using Job = std::function<void()>;

  CallQueue();
  /// Waits for all posted jobs.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Returns at once. Only one thread at a time may call it, as with any collective call.
  void post(Job job);
  /// Returns when all posted jobs have returned. Its caller may then make such calls itself.
  void drain();
  /// Whether the caller is a job, which can neither drain nor end the queue.
  [[nodiscard]] bool on_own_thread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);  // the first is running
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gradwire::drop_in
