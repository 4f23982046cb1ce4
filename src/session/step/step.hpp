// The steps of a session on one rank: which gradients are ready, what is to be done next, what has ended. A state
// machine without threads, locks, transport or clock: whoever communicates asks next() what to do, does it, and says
// what came of it. session/engine/progress.hpp has the threads and the locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/step/faults.hpp"
#include "session/step/step_buckets.hpp"
#include "session/step/step_info.hpp"
#include "session/step/step_terms.hpp"
#include "session/step/sync_schedule.hpp"

namespace gradwire::session {

/// What whoever communicates is to do next.
struct StepAction {
  enum class Kind : std::uint8_t {
    none,
    agree,  // with all ranks on the plan and on weights; then StepTerms::agree()
    look,   // for NaN and Inf in all gradients, on all ranks; then Step::looked()
    start,  // the bucket, which is under way from here on; then Step::bucket_ended()
  };
  Kind kind = Kind::none;
  std::uint32_t bucket = 0;
  StepInfo info = {};
};

/// What a step was, once it has ended.
struct StepResult {
  StepOutcome outcome;
  bool as_usual;              // it was reduced as steps are: not skipped, flushed or captured
  std::uint32_t micro_steps;  // the most of any tensor
};

class Step {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Action = StepAction;
  using End = StepResult;

  /// `session`: its number in tickets, from 1.
  Step(std::uint32_t session, Nonfinite nonfinite) : terms(nonfinite), session_(session) {}

  StepTerms terms;
  SyncSchedule modes;
  StepBuckets buckets;  // others read it; only accumulate() and start_all() are called from outside
  Faults faults;

  // Before the first step.
  void add_tensor() { buckets.add_tensor(); }
  /// Of all tensors that were added. Buckets start in its order.
  void set_plan(const plan::Plan& plan);
  /// Goes on from a saved state.
  void resume(std::uint64_t step, double loss_scale, bool loss_scale_set, bool weighted);
  /// Goes on between steps where `before`, of the same session in another world, was when its step began.
  void go_on_from(const Step& before);

  // Between steps; Error(invalid_argument), which names `call`, where a step is under way.
  void require_between(const char* call) const;
  void flush_next();
  /// From the first step on, or never.
  void set_weight(double samples);
  /// Replays of captured steps have come that far.
  void jump_to(std::uint64_t step);

  /// The first ready() of this step for the tensor. Returns its ticket.
  Ticket ready(std::uint32_t tensor, Time now);
  /// Once all buckets have ended. `captured`: it runs when the graph does, so that the next one has the same number.
  StepResult end(bool nonfinite, bool captured);

  // What is to be done, by whoever communicates.
  /// `waits`: the caller does nothing else until the step has ended, or so.
  [[nodiscard]] StepAction next(bool waits, Time now);
  /// Ranks with NaN or Inf in a gradient; where there are any the step ends here.
  void looked(std::vector<int> nonfinite_ranks);
  void bucket_ended(std::uint32_t bucket, bool nonfinite);
  /// Whether the step is whole, nothing of it has started, and nothing comes before or beside plain sums. Then all
  /// buckets may start at once; StepBuckets::start_all() and end_all() take the place of next() and bucket_ended().
  [[nodiscard]] bool may_start_all() const;
  void end_all(bool nonfinite);
  /// Whether the last bucket of each coming step is held for a caller who waits (StepInfo::InCall).
  void decide_last(bool in_call) noexcept { last_ = {in_call, terms.has_agreed(), last_.ready}; }
  [[nodiscard]] bool last_decided() const noexcept { return last_.decided; }

  // What it looks like from outside.
  [[nodiscard]] std::uint32_t session() const noexcept { return session_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const StepOutcome& outcome() const noexcept { return outcome_; }
  [[nodiscard]] bool under_way() const noexcept { return !faults.failed() && buckets.under_way(); }
  /// Whether next() would say something to a thread that does not wait, or something is under way.
  [[nodiscard]] bool has_work(Time now) const { return to_look() || may_start(false, now) || under_way(); }
  /// Whether something could start, or would but for who asks.
  [[nodiscard]] bool startable() const {
    return !faults.failed() && buckets.next_is_whole() && (looked_ || !looks_first());
  }
  [[nodiscard]] bool to_look() const { return !faults.failed() && looks_first() && !looked_ && buckets.whole(); }
  [[nodiscard]] bool holds_last() const { return last_.in_call && !terms.weighted() && buckets.next_is_last(); }
  /// Whether this step begins with a look for NaN and Inf: one that carries all residuals must not lose them.
  [[nodiscard]] bool looks_first() const {
    return terms.skips() || terms.flushes() || modes.precedes_local_steps(number_);
  }
  /// Of the coming buckets.
  [[nodiscard]] StepInfo info() const { return terms.info(number_); }

 private:
  struct Last {
    bool in_call = false;
    bool decided = false;  // in_call is known
    Time ready = {};       // when the last bucket to be complete had all its tensors
  };

  void reset();
  [[nodiscard]] bool may_start(bool waits, Time now) const;

  std::uint32_t session_;
  std::uint64_t number_ = 0;

  // This step.
  bool looked_ = false;
  StepOutcome outcome_;
  Last last_;
};

}  // namespace gradwire::session
