// What whoever communicates does for a session: what its step says is next, until nothing is.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "observe/record.hpp"
#include "plan/plan_algorithms.hpp"
#include "session/agreements.hpp"
#include "session/engine.hpp"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;
using Action = session::Step::Action;

constexpr std::uint64_t kSmallBucketBytes = 1ULL << 20;  // what the progress thread is not woken for

}  // namespace

void session::Engine::communicate(std::chrono::microseconds wait, bool waits) {
  // Since the last time, where something was under way then: nobody does anything else with it.
  const auto begin = std::exchange(busy_since, {}).value_or(Clock::now());
  try {
    const bool busy = start_what_can(waits);
    if (parts.background() != nullptr) {
      parts.background()->start(*runner);
    }
    const auto ended = runner->advance(wait);
    if (busy || !ended.empty()) {
      const MutexLock lock(progress.state);
      record_ended(ended);
      if (busy) {  // counted before a caller can end the step
        const auto now = Clock::now();
        watch.busy(begin, now);
        busy_since = step.under_way() ? std::optional(now) : std::nullopt;
      }
    }
  } catch (...) {
    rethrow_given_up(!progress.is_progress_thread());
  }
}

// Returns whether something was, or is now, under way.
bool session::Engine::start_what_can(bool waits) {
  bool busy = false;
  for (;;) {
    Action action;
    {
      const MutexLock lock(progress.state);
      step.faults.stop_if_failed();
      busy = busy || step.under_way();
      action = step.next(waits, Clock::now());
    }
    switch (action.kind) {
      case Action::Kind::none: return busy;
      case Action::Kind::agree: agree_on_plan(action.info.weighted); break;
      case Action::Kind::look: look_for_nonfinite(); break;
      case Action::Kind::start:
        start(action);
        busy = true;
        break;
    }
  }
}

bool session::Engine::reduce_small() {
  bool nonfinite = false;
  const auto applies = [this] {
    progress.state.assert_held();
    const bool may = small && step.may_start_all() && !parts.look_at_buckets(step.number());
    if (may) {
      step.start_all();
    }
    return may;
  };
  const auto reduce = [&] {
    try {
      session::StepInfo info = settled_step().info();
      parts.tune(info);
      nonfinite = runner->small()->reduce(*plan, tensors.memory(), info);
    } catch (...) {
      rethrow_given_up(true);
    }
  };
  return progress.drive_once(applies, reduce, [&] {
    progress.state.assert_held();
    step.end_all(nonfinite);
  });
}

void session::Engine::start(const Action& action) {
  session::StepInfo info = action.info;
  parts.tune(info);
  const plan::Bucket& bucket = plan->buckets[action.bucket];
  if (!enqueue(bucket, info)) {
    runner->start(*plan, bucket, tensors.memory(), info);
  }
}

void session::Engine::record_ended(const std::vector<session::Buckets::Ended>& ended) {
  for (const session::Buckets::Ended& bucket : ended) {
    if (bucket.background) {
      parts.background()->ended(bucket);
      note_arrival(bucket.bucket);
      continue;
    }
    step.bucket_ended(bucket.bucket, bucket.nonfinite);
    parts.bucket_ended(step.number(), bucket);
  }
  if (!ended.empty()) {
    progress.changed();
  }
}

void session::Engine::agree_on_plan(bool weighted) {
  if (!settled_step().to_agree()) {  // changes under both locks
    return;
  }
  const bool again = settled_step().has_agreed();
  std::vector<std::string> told;
  try {
    told = runner->agree(*plan, weighted, settled_step().number(), parts.names(), parts.says());
  } catch (const Error& error) {
    if (again && (error.code() == ErrorCode::timeout || error.code() == ErrorCode::aborted)) {
      throw Error(error.code(), std::string(error.what()) + " (set_weight() was called after reserve() or " +
                                    "sync_parameters(): did every rank call it?)");
    }
    throw;
  }
  if (!again) {
    const auto settle = [this](const Link& link) {
      const MutexLock lock(progress.state);
      plan::settle_again(*plan, policy, link);
    };
    parts.agreed({settled_step().number(), {weighted, options.nonfinite == Nonfinite::skip}, {}, settle}, told);
  }
  const MutexLock lock(progress.state);
  if (!again) {
    parts.recollect(comparison);
  }
  step.agreed();
}

void session::Engine::look_for_nonfinite() {
  const auto begin = Clock::now();
  std::vector<int> ranks =
      runner->nonfinite_ranks(tensors.memory(), settled_step().loss_scale(), settled_step().number());
  const MutexLock lock(progress.state);
  parts.waited(seconds_since(begin));
  step.looked(std::move(ranks));
  progress.changed();
}

void session::Engine::rethrow_given_up(bool to_caller) {
  const Error error = current_error();
  give_up(error);
  if (to_caller) {
    const MutexLock lock(progress.state);
    step.faults.reported();
  }
  throw Error(error);
}

// What an engine's next one goes on from is no error, unless there is none.
void session::Engine::give_up(const Error& error, bool for_good) noexcept {
  const bool is_one = for_good || !leaves_to_finish(error);
  if (is_one && !told_error.exchange(true)) {
    observe::record({.begin = observe::ticks(),
                     .bytes = static_cast<std::uint64_t>(error.code()),
                     .source = runner->info().source,
                     .step = static_cast<std::uint32_t>(settled_step().number()),
                     .kind = observe::EventKind::error});
  }
  runner->fail(error.code(), error.what());
  const MutexLock lock(progress.state);
  step.faults.fail(error);
  progress.changed();
  progress.wake();
}

bool session::Engine::last_awaits_caller() const {
  return plan && !plan->buckets.empty() &&
         (step.holds_last() ||
          plan->buckets.back().count * element_bytes(plan->buckets.back().dtype) <= kSmallBucketBytes);
}

}  // namespace gradwire
