#include "drop_in/call_queue.hpp"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace gradwire::drop_in {
namespace {

// The job's signal handlers run on its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

CallQueue::CallQueue() {
  const SignalsBlocked blocked;  // the thread inherits it
  thread_ = std::thread([this] { run(); });
}

CallQueue::~CallQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CallQueue::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void CallQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
}

void CallQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    Job& job = jobs_.front();  // stays where it is while others are pushed behind it
    lock.unlock();
    job();
    job = nullptr;  // destroying it may take locks that a posting thread has
    lock.lock();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace gradwire::drop_in
