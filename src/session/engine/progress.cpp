#include "session/engine/progress.hpp"

#include <string>

#include "memory/placement.hpp"

namespace gradwire::session {
namespace {

// Handing a bucket over to the progress thread takes tens of microseconds, which matters for a small bucket. If such a
// bucket is the last of its step, finish() is likely to be called at once and reduces it itself, so the thread is not
// woken. For callers that do something else first, the thread looks for work every kLook as long as steps go on.
constexpr std::chrono::milliseconds kLook{5};
constexpr int kLooks = 200;  // looks without a new step until the progress thread sleeps

}  // namespace

void Progress::start(Work& work) {
  work_ = &work;
  if (background()) {
    thread_ = std::thread([this] {
      if (binds_) {
        memory::bind_this_thread(memory::own_placement());
      }
      run();
    });
  }
}

void Progress::stop(const std::function<void()>& first) {
  {
    const MutexLock lock(state);
    stopping_ = true;
    wake_.notify_all();
  }
  if (first) {
    first();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Progress::run() noexcept {
  try {
    const MutexLock lock(state);
    for (;;) {
      await_work();
      if (stopping_ && !work_->in_background()) {
        return;
      }
      drive(std::chrono::microseconds(0),
            [this]() REQUIRES(state) { return !has_work() || (stopping_ && !work_->in_background()); });
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): communicate() has kept the error for the next call
  }
}

void Progress::await_work() {
  const auto there = [this]() REQUIRES(state) { return (stopping_ || has_work()) && !driven_; };
  for (;;) {
    looks_ = true;
    for (int left = kLooks; work_->last_awaits_caller() && left > 0; --left) {
      const std::uint64_t before = step_.number();
      if (wake_.wait_for(state, kLook, there)) {
        return;
      }
      left = step_.number() == before ? left : kLooks;
    }
    looks_ = false;
    const std::uint64_t before = step_.number();
    // When steps go on again, the loop ends without work, so that this thread polls and the next step need not wake it.
    while (!there() && (step_.number() == before || !work_->last_awaits_caller())) {
      if (step_.startable() && !driven_) {
        wake_.wait_for(state, kLook);  // a bucket held for a caller becomes free to start without a notification
      } else {
        wake_.wait(state);
      }
    }
    if (there()) {
      return;
    }
  }
}

void Progress::wake_after_ready() {
  const bool left_to_caller =
      looks_ &&
      (work_->all_await_caller() || (step_.buckets.next_is_last() && !step_.to_look() && work_->last_awaits_caller()));
  if (background() && !driven_ && (step_.startable() || step_.to_look()) && !left_to_caller) {
    wake_.notify_all();
  }
}

bool Progress::may_communicate() const noexcept {
  return threading_ == Threading::serialized ||
         (threading_ == Threading::main_thread && std::this_thread::get_id() == owner_);
}

void Progress::require_communication(const char* call) const {
  if (!background() && !may_communicate()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": with this MPI thread level only the thread that made the session may call it; " +
                    "use MPI_Init_thread with MPI_THREAD_MULTIPLE, or call it on that thread");
  }
}

void Progress::inside_call() {
  if (!background() && may_communicate()) {
    if (wire.try_lock()) {
      const MutexLock lock(wire, std::adopt_lock);
      work_->communicate(std::chrono::microseconds(0), false);
    }
  }
}

}  // namespace gradwire::session
