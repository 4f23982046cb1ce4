#include "session/engine/communication.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "plan/plan_algorithms.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;
using Action = Step::Action;

constexpr std::uint64_t kSmallBucketBytes = 1ULL << 20;  // up to this size a last bucket is left to finish()

}  // namespace

void Communication::communicate(std::chrono::microseconds wait, bool waits) {
  core_.progress.wire.assert_held();
  // If buckets were under way after the last call, the time since then was busy, too.
  const auto begin = std::exchange(busy_since_, {}).value_or(Clock::now());
  try {
    const bool busy = start_what_can(waits);
    if (core_.parts.background() != nullptr) {
      core_.parts.background()->start(*core_.runner);
    }
    const auto ended = core_.runner->advance(wait);
    if (busy || !ended.empty()) {
      const MutexLock lock(core_.progress.state);
      record_ended(ended);
      if (busy) {  // the time is counted before a caller can end the step
        const auto now = Clock::now();
        core_.watch.busy(begin, now);
        busy_since_ = core_.step.under_way() ? std::optional(now) : std::nullopt;
      }
    }
  } catch (...) {
    core_.rethrow_given_up(!core_.progress.is_progress_thread());
  }
}

bool Communication::start_what_can(bool waits) {
  bool busy = false;
  for (;;) {
    Action action;
    {
      const MutexLock lock(core_.progress.state);
      core_.step.faults.stop_if_failed();
      busy = busy || core_.step.under_way();
      action = core_.step.next(waits, Clock::now());
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

void Communication::start(const Action& action) {
  StepInfo info = action.info;
  core_.parts.tune(info);
  const plan::Bucket& bucket = core_.plan->buckets[action.bucket];
  if (!enqueue(bucket, info)) {
    core_.runner->start(*core_.plan, bucket, core_.tensors.memory(), info);
  }
}

void Communication::record_ended(const std::vector<Buckets::Ended>& ended) {
  for (const Buckets::Ended& bucket : ended) {
    if (bucket.background) {
      core_.parts.background()->ended(bucket);
      note_arrival(bucket.bucket);
      continue;
    }
    core_.step.bucket_ended(bucket.bucket, bucket.nonfinite);
    core_.parts.bucket_ended(core_.step.number(), bucket);
  }
  if (!ended.empty()) {
    core_.progress.changed();
  }
}

void Communication::agree_on_plan(bool weighted) {
  core_.progress.wire.assert_held();
  const Step& settled = core_.settled_step();
  if (!settled.terms.to_agree()) {  // it changes only under both locks
    return;
  }
  const bool again = settled.terms.has_agreed();
  std::vector<std::string> told;
  try {
    told = core_.runner->agree(*core_.plan, weighted, settled.number(), core_.parts.names(), core_.parts.says());
  } catch (const Error& error) {
    if (again && (error.code() == ErrorCode::timeout || error.code() == ErrorCode::aborted)) {
      throw Error(error.code(),
                  std::string(error.what()) + " (set_weight() was called after reserve() or " +
                      "sync_parameters(): did every rank call it?)",
                  error.cause());
    }
    throw;
  }
  {
    const MutexLock lock(core_.progress.state);
    core_.plan->most_level = std::min(core_.plan->most_level, core_.runner->most_level());
  }
  if (!again) {
    const auto settle = [this](const Link& link) {
      const MutexLock lock(core_.progress.state);
      plan::settle_again(*core_.plan, core_.settings.policy, link);
    };
    core_.parts.agreed({settled.number(), {weighted, core_.settings.options.nonfinite == Nonfinite::skip}, {}, settle},
                       told);
  }
  const MutexLock lock(core_.progress.state);
  if (!again) {
    core_.parts.recollect(core_.comparison);
  }
  core_.step.terms.agree();
}

void Communication::look_for_nonfinite() {
  const auto begin = Clock::now();
  const Step& settled = core_.settled_step();
  std::vector<int> ranks =
      core_.runner->nonfinite_ranks(core_.tensors.memory(), settled.terms.loss_scale(), settled.number());
  const MutexLock lock(core_.progress.state);
  core_.parts.waited(seconds_since(begin));
  core_.step.looked(std::move(ranks));
  core_.progress.changed();
}

bool Communication::last_awaits_caller() const {
  core_.progress.state.assert_held();
  return core_.plan && !core_.plan->buckets.empty() &&
         (core_.step.holds_last() ||
          core_.plan->buckets.back().count * element_bytes(core_.plan->buckets.back().dtype) <= kSmallBucketBytes);
}

bool Communication::in_background() const {
  core_.progress.state.assert_held();
  return !core_.step.faults.failed() && core_.parts.background() != nullptr && core_.parts.background()->busy();
}

bool Communication::enqueue(const plan::Bucket& bucket, const StepInfo& info) {
  Background* background = core_.parts.background();
  if (background == nullptr) {
    return false;
  }
  background->before_bucket(info.step);
  const Step& settled = core_.settled_step();
  if (!background->enqueue(bucket, info, settled.number(), settled.terms.loss_scale())) {
    return false;
  }
  const MutexLock lock(core_.progress.state);
  note_arrival(bucket.id);
  return true;
}

void Communication::note_arrival(std::uint32_t bucket) {
  if (core_.step.buckets.under_way(bucket) && core_.parts.background()->arrived(bucket)) {
    core_.step.bucket_ended(bucket, false);
    core_.progress.changed();
  }
}

void Communication::progress_background() {
  {
    const MutexLock lock(core_.progress.state);
    core_.step.faults.stop_if_failed();  // after a failure the buckets under way were given up and would never end
  }
  core_.parts.background()->start(*core_.runner);
  for (const Runner::Ended& ended : core_.runner->advance(std::chrono::milliseconds(1))) {
    core_.parts.background()->ended(ended);
  }
}

void Communication::end_what_travels() {
  core_.progress.wire.assert_held();
  while (core_.parts.background()->busy()) {
    progress_background();
  }
}

void Communication::drain(const char* call) {
  core_.progress.wire.assert_held();
  {
    const MutexLock lock(core_.progress.state);
    core_.throw_if_failed();
    core_.step.require_between(call);
    if (!in_background()) {
      return;
    }
  }
  core_.progress.require_communication(call);
  core_.or_give_up([this] { end_what_travels(); });
}

void Communication::end_background() noexcept {
  try {
    const auto busy = [this] {
      const MutexLock lock(core_.progress.state);
      return in_background();
    };
    if (core_.progress.background() || !busy()) {
      return;  // the progress thread finishes it
    }
    if (!core_.progress.may_communicate()) {
      core_.runner->abort(
          Error(ErrorCode::aborted,
                "session destroyed with reductions in the background, on a thread that may not communicate"));
      return;
    }
    const MutexLock lock(core_.progress.wire);
    while (busy()) {
      communicate(std::chrono::milliseconds(1), false);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): communicate() has told the other ranks
  }
}

}  // namespace gradwire::session
