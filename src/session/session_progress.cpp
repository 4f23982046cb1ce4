// What moves a session's steps: its progress thread, or whoever calls.
#include <utility>

#include "base/current_error.hpp"
#include "session/session_state.hpp"

namespace gradwire {
namespace {

// To hand a bucket over to the progress thread takes tens of microseconds, which a small one feels. Where it is a
// step's last one, finish() is likely to come at once and reduces it itself, so the thread is not woken: it looks now
// and then as long as steps go on, for callers who do something else first.
constexpr std::uint64_t kSmallBucketBytes = 1ULL << 20;
constexpr std::chrono::milliseconds kLook{5};
constexpr int kLooks = 200;  // without anything to do, until it sleeps

}  // namespace

bool Session::State::startable_without_caller() const {
  return startable() && (!held() || std::chrono::steady_clock::now() - last_ready >= kLook);
}

void Session::State::communicate(std::chrono::microseconds wait, bool waits) {
  // Since the last time, where something was under way then: nobody does anything else with it.
  const auto begin = std::exchange(busy_since, {}).value_or(std::chrono::steady_clock::now());
  try {
    check_finite();
    bool busy = false;
    for (;;) {
      const plan::Bucket* bucket = nullptr;
      session::StepInfo info;
      {
        const std::lock_guard lock(mutex);
        if (failure) {
          throw Error(*failure);
        }
        busy = busy || under_way();
        // Who waits begins with what is held only when nothing else is under way: it then cannot move that.
        const bool may = waits ? startable() && (!held() || !under_way()) : startable_without_caller();
        if (!may) {
          break;
        }
        info = {static_cast<std::uint32_t>(step), weighted, weight, flush_next};
        if (held()) {
          info.in_call = waits ? session::StepInfo::InCall::waits : session::StepInfo::InCall::does_not_wait;
        }
        bucket = &plan->buckets[next_bucket++];
        busy = true;
      }
      agree_once(info.weighted);
      agree_on_outer(info.step);
      if (adaptation) {
        info.choices = adaptation->choices();
        info.sample = adaptation->samples(info.step);
      }
      info.norms = batch && batch->samples(info.step);
      if (!take(*bucket, info)) {
        runner->start(*plan, *bucket, memory, info);
      }
    }
    if (modes) {
      modes->start(*runner);
    }
    const auto ended = runner->advance(wait);
    if (!ended.empty()) {
      const std::lock_guard lock(mutex);
      for (const session::Runner::Ended& bucket : ended) {
        if (bucket.background) {
          modes->ended(bucket);
          note_arrival(bucket.bucket);
          continue;
        }
        has_ended[bucket.bucket] = true;
        ++ended_buckets;
        outcome.nonfinite = outcome.nonfinite || bucket.nonfinite;
        if (bucket.sample) {
          adaptation->sampled(bucket.bucket, *bucket.sample);
        }
        if (bucket.norms) {
          batch->sampled(step, *bucket.norms);
        }
      }
      changed.notify_all();
    }
    if (busy) {
      const auto end = std::chrono::steady_clock::now();
      const std::lock_guard lock(mutex);
      seen.busy_seconds += std::chrono::duration<double>(end - begin).count();
      if (under_way()) {
        busy_since = end;
      }
    }
  } catch (...) {
    rethrow_given_up(std::this_thread::get_id() != thread.get_id());
  }
}

void Session::State::rethrow_given_up(bool to_caller) {
  const Error error = current_error();
  give_up(error);
  if (to_caller) {
    const std::lock_guard lock(mutex);
    reported = true;
  }
  throw Error(error);
}

void Session::State::give_up(const Error& error) noexcept {
  runner->fail(error.code(), error.what());
  const std::lock_guard lock(mutex);
  if (!failure) {
    failure = error;
  }
  changed.notify_all();
  work.notify_all();
}

void Session::State::run() noexcept {
  try {
    std::unique_lock lock(mutex);
    for (;;) {
      await_work(lock);
      if (stopping && !in_background()) {
        return;
      }
      drive(lock, std::chrono::microseconds(0), [this] { return !has_work() || (stopping && !in_background()); });
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): communicate() has kept it for the next call
  }
}

void Session::State::await_work(std::unique_lock<std::mutex>& lock) {
  const auto there = [this] { return (stopping || has_work()) && !driven; };
  looks = true;
  for (int left = kLooks; last_awaits_caller() && left > 0; --left) {
    const std::uint64_t before = step;
    if (work.wait_for(lock, kLook, there)) {
      return;
    }
    left = step == before ? left : kLooks;
  }
  looks = false;
  work.wait(lock, there);
}

bool Session::State::last_awaits_caller() const {
  return plan && !plan->buckets.empty() &&
         (held() || plan->buckets.back().count * element_bytes(plan->buckets.back().dtype) <= kSmallBucketBytes);
}

bool Session::State::may_communicate() const {
  return options.threading == Threading::serialized ||
         (options.threading == Threading::main_thread && std::this_thread::get_id() == owner);
}

void Session::State::require_communication(const char* call) const {
  if (!background() && !may_communicate()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": with this MPI thread level only the thread that made the session may call it; " +
                    "use MPI_Init_thread with MPI_THREAD_MULTIPLE, or call it on that thread");
  }
}

void Session::State::progress_inside_call() {
  if (!background() && may_communicate()) {
    const std::unique_lock lock(wire, std::try_to_lock);
    if (lock.owns_lock()) {
      communicate(std::chrono::microseconds(0));
    }
  }
}

}  // namespace gradwire
