#include "session/step/step.hpp"

#include <cmath>
#include <string>
#include <utility>

namespace gradwire::session {
namespace {

// The last bucket of a step is held for this long for a caller that waits.
constexpr std::chrono::milliseconds kHold{5};

}  // namespace

void Step::set_plan(const plan::Plan& plan) {
  buckets.set_plan(plan);
  modes = SyncSchedule(plan);
  reset();
}

void Step::reset() {
  buckets.reset();
  looked_ = false;
  outcome_ = {};
  outcome_.step = number_;
}

void Step::resume(std::uint64_t step, const SavedTerms& saved) {
  number_ = step;
  terms.resume(saved);
  last_ = {};  // the loaded state may change how the last bucket is reduced
  reset();
}

void Step::go_on_from(const Step& before) {
  number_ = outcome_.step = before.number_;
  terms.go_on_from(before.terms);
}

void Step::require_between(const char* call) const {
  if (buckets.in_step()) {
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": step " + std::to_string(number_) +
                                                 " is under way; call it before its first ready() or after finish()");
  }
}

void Step::flush_next() {
  require_between("flush");
  terms.flush_next();
}

void Step::set_weight(double samples) {
  if (!(samples >= 0) || !std::isfinite(samples)) {
    throw Error(ErrorCode::invalid_argument,
                "set_weight: " + std::to_string(samples) + " must be finite and not below 0");
  }
  if (buckets.in_step()) {
    throw Error(ErrorCode::invalid_argument,
                "set_weight: a step is under way; call it before the step's first ready()");
  }
  terms.set_weight(samples, number_);
}

void Step::jump_to(std::uint64_t step) {
  number_ = step;
  outcome_.step = step;
}

Ticket Step::ready(std::uint32_t tensor, Time now) {
  if (buckets.ready(tensor)) {
    last_.ready = now;
  }
  return {number_, buckets.bucket_of(tensor), session_};
}

StepResult Step::end(bool nonfinite, bool captured) {
  StepResult end{outcome_, !outcome_.skipped && !terms.flushes() && !captured, buckets.take_micro_steps()};
  end.outcome.nonfinite = end.outcome.nonfinite || nonfinite;
  if (outcome_.skipped) {
    modes.put_off(number_);
  }
  terms.end_step(outcome_.skipped);
  number_ += captured ? 0 : 1;
  faults.forgive();
  reset();
  return end;
}

// A waiting thread starts the held bucket only when no other bucket is under way, because its blocking call would stall
// the others. A thread that does not wait starts it after kHold, if no caller has come until then.
bool Step::may_start(bool waits, Time now) const {
  return startable() && (!holds_last() || (waits ? !under_way() : now - last_.ready >= kHold));
}

StepAction Step::next(bool waits, Time now) {
  using Kind = StepAction::Kind;
  const bool look = to_look();
  if (!look && !may_start(waits, now)) {
    return {};
  }
  if (terms.to_agree()) {
    return {Kind::agree, 0, info()};
  }
  if (look) {
    return {Kind::look, 0, info()};
  }
  StepAction start{Kind::start, 0, info()};
  if (holds_last()) {
    start.info.in_call = waits ? StepInfo::InCall::waits : StepInfo::InCall::does_not_wait;
  }
  start.bucket = buckets.start_next();
  start.info.flush = terms.flushes() || modes.precedes_local_steps(start.bucket, number_);
  return start;
}

void Step::looked(std::vector<int> nonfinite_ranks) {
  looked_ = true;
  if (!nonfinite_ranks.empty()) {
    outcome_.skipped = outcome_.nonfinite = true;
    outcome_.nonfinite_ranks = std::move(nonfinite_ranks);
    buckets.end_all();
  }
}

void Step::bucket_ended(std::uint32_t bucket, bool nonfinite) {
  buckets.end(bucket);
  outcome_.nonfinite = outcome_.nonfinite || nonfinite;
}

bool Step::may_start_all() const {
  return !faults.failed() && buckets.whole() && buckets.before_first_bucket() && !terms.to_agree() &&
         !terms.weighted() && !looks_first() && !last_.in_call;
}

void Step::end_all(bool nonfinite) {
  buckets.end_all();
  outcome_.nonfinite = outcome_.nonfinite || nonfinite;
}

}  // namespace gradwire::session
