#include "session/step.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace gradwire::session {
namespace {

// The last bucket of a step is held so long for a caller who waits.
constexpr std::chrono::milliseconds kHold{5};

}  // namespace

void Step::set_plan(const plan::Plan& plan) {
  buckets_.assign(plan.buckets.size(), {});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].bucket = static_cast<std::uint32_t>(plan.tensors[i].bucket);
    ++buckets_[tensors_[i].bucket].tensors;
  }
  modes_ = SyncSchedule(plan);
  planned_ = true;
  reset();
}

void Step::reset() {
  for (Tensor& tensor : tensors_) {
    tensor.ready = false;
  }
  whole_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.tensors;
    bucket.ended = false;
    whole_ += bucket.missing == 0 ? 1 : 0;
  }
  ready_ = next_ = ended_ = 0;
  looked_ = false;
  outcome_ = {};
  outcome_.step = number_;
}

void Step::resume(std::uint64_t step, double loss_scale, bool loss_scale_set, bool weighted) {
  number_ = step;
  loss_scale_ = {loss_scale, loss_scale_set};
  weight_.required = weight_.required || weighted;
  last_ = {};  // what was loaded may change how it travels
  reset();
}

void Step::require_between(const char* call) const {
  if (in_step()) {
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": step " + std::to_string(number_) +
                                                 " is under way; call it before its first ready() or after finish()");
  }
}

void Step::flush_next() {
  require_between("flush");
  flush_ = true;
}

void Step::set_loss_scale(double scale) { loss_scale_ = {scale, true}; }

void Step::set_weight(double samples) {
  if (!(samples >= 0) || !std::isfinite(samples)) {
    throw Error(ErrorCode::invalid_argument,
                "set_weight: " + std::to_string(samples) + " must be finite and not below 0");
  }
  if (in_step()) {
    throw Error(ErrorCode::invalid_argument,
                "set_weight: a step is under way; call it before the step's first ready()");
  }
  if (!weight_.set && stepped_) {
    throw Error(ErrorCode::invalid_argument, "set_weight: first called in step " + std::to_string(number_) +
                                                 "; call it from the first step on, on every rank");
  }
  weight_.set = true;
  weight_.value = samples;
}

void Step::go_on_from(const Step& before) {
  number_ = outcome_.step = before.number_;
  loss_scale_ = before.loss_scale_;
  weight_ = before.weight_;
  flush_ = before.flush_;
  stepped_ = before.stepped_;
}

void Step::require_weights() const {
  if (weight_.required && !weight_.set) {
    throw Error(ErrorCode::invalid_argument,
                "ready: the loaded state is of weighted steps; call set_weight() first, as before it was saved");
  }
}

void Step::jump_to(std::uint64_t step) {
  number_ = step;
  outcome_.step = step;
}

Ticket Step::ready(std::uint32_t tensor, Time now) {
  Tensor& entry = tensors_[tensor];
  entry.ready = true;
  ++ready_;
  if (--buckets_[entry.bucket].missing == 0) {
    ++whole_;
    last_.ready = now;
  }
  return {number_, entry.bucket, session_};
}

Step::End Step::end(bool nonfinite, bool captured) {
  End end{outcome_, !outcome_.skipped && !flush_ && !captured, 1};
  end.outcome.nonfinite = end.outcome.nonfinite || nonfinite;
  for (Tensor& tensor : tensors_) {
    end.micro_steps = std::max(end.micro_steps, std::exchange(tensor.micro_steps, 0) + 1);
  }
  if (outcome_.skipped) {
    modes_.put_off(number_);
  }
  flush_ = flush_ && outcome_.skipped;
  number_ += captured ? 0 : 1;
  stepped_ = true;
  faults.forgive();
  reset();
  return end;
}

bool Step::to_look() const {
  return planned_ && !faults.failed() && looks_first() && !looked_ && !buckets_.empty() && whole_ == buckets_.size();
}

bool Step::startable() const {
  return planned_ && !faults.failed() && next_ < buckets_.size() && buckets_[next_].missing == 0 &&
         (looked_ || !looks_first());
}

// Who waits begins with what is held only when nothing else is under way: it then cannot move that. For whoever does
// not wait it starts all the same when no caller has come for a while.
bool Step::may_start(bool waits, Time now) const {
  return startable() && (!holds_last() || (waits ? !under_way() : now - last_.ready >= kHold));
}

StepInfo Step::info() const { return {static_cast<std::uint32_t>(number_), weight_.set, weight_.value, flush_}; }

Step::Action Step::next(bool waits, Time now) {
  const bool look = to_look();
  if (!look && !may_start(waits, now)) {
    return {};
  }
  if (to_agree()) {
    return {Action::Kind::agree, 0, info()};
  }
  if (look) {
    return {Action::Kind::look, 0, info()};
  }
  Action start{Action::Kind::start, static_cast<std::uint32_t>(next_), info()};
  start.info.flush = flush_ || modes_.precedes_local_steps(start.bucket, number_);
  if (holds_last()) {
    start.info.in_call = waits ? StepInfo::InCall::waits : StepInfo::InCall::does_not_wait;
  }
  ++next_;
  return start;
}

void Step::looked(std::vector<int> nonfinite_ranks) {
  looked_ = true;
  if (!nonfinite_ranks.empty()) {
    outcome_.skipped = outcome_.nonfinite = true;
    outcome_.nonfinite_ranks = std::move(nonfinite_ranks);
    next_ = ended_ = buckets_.size();
    for (Bucket& bucket : buckets_) {
      bucket.ended = true;
    }
  }
}

void Step::bucket_ended(std::uint32_t bucket, bool nonfinite) {
  buckets_[bucket].ended = true;
  ++ended_;
  outcome_.nonfinite = outcome_.nonfinite || nonfinite;
}

bool Step::may_start_all() const {
  return planned_ && !faults.failed() && !buckets_.empty() && whole_ == buckets_.size() && next_ == 0 && !to_agree() &&
         !weight_.set && !looks_first() && !last_.in_call;
}

void Step::end_all(bool nonfinite) {
  for (Bucket& bucket : buckets_) {
    bucket.ended = true;
  }
  ended_ = buckets_.size();
  outcome_.nonfinite = outcome_.nonfinite || nonfinite;
}

bool Step::in_mode(const Ticket& ticket) const {
  return planned_ && ticket.step == number_ && modes_.active(ticket.bucket, number_);
}

bool Step::ended(const Ticket& ticket) const {
  if (in_mode(ticket)) {
    return false;
  }
  return ticket.bucket == Ticket::kNothing || ticket.step < number_ ||
         (ticket.step == number_ && ticket.bucket < buckets_.size() && buckets_[ticket.bucket].ended);
}

// Nothing would ever bring such a ticket's result.
void Step::check(const char* call, const Ticket& ticket) const {
  if (ticket.bucket == Ticket::kNothing) {
    return;
  }
  const std::string given = std::string(call) + ": the ticket is of bucket " + std::to_string(ticket.bucket) +
                            " in step " + std::to_string(ticket.step);
  const std::string fix = "; give a ticket that ready() of this session returned";
  if (ticket.session != 0 && ticket.session != session_) {
    throw Error(ErrorCode::invalid_argument, given + " of another session" + fix);
  }
  if (ticket.bucket >= buckets_.size()) {
    throw Error(ErrorCode::invalid_argument,
                given + ", this session has " + std::to_string(buckets_.size()) + " buckets" + fix);
  }
  if (ticket.step > number_) {
    throw Error(ErrorCode::invalid_argument, given + ", this session is in step " + std::to_string(number_) + fix);
  }
}

void Step::check_wait(const Ticket& ticket) const {
  if (in_mode(ticket)) {
    throw Error(ErrorCode::invalid_argument, "wait: the tensor's sync mode brings its result with finish(); call that");
  }
  if (ended(ticket)) {
    return;
  }
  // Where ranks look for NaN first, nothing starts before all is ready.
  const std::size_t last = looks_first() ? buckets_.size() : std::size_t{ticket.bucket} + 1;
  for (std::size_t bucket = 0; bucket < last; ++bucket) {
    if (buckets_[bucket].missing > 0) {
      throw Error(ErrorCode::invalid_argument,
                  "wait: bucket " + std::to_string(bucket) + " has " + std::to_string(buckets_[bucket].missing) +
                      " tensor(s) that are not ready, and must start first" +
                      (looks_first() ? " (in this step ranks look for NaN and Inf in all gradients first)" : "") +
                      "; call ready() for them first");
    }
  }
}

}  // namespace gradwire::session
