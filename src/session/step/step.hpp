// Step is the state machine of the steps of a session on one rank: it knows which gradients are ready, what is to be
// done next, and which buckets have ended. It has no threads, locks, transport or clock: the thread that communicates
// asks next() what to do, does it, and reports the result. session/engine/progress.hpp has the threads and the locks.
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

/// The next action of the thread that communicates.
struct StepAction {
  enum class Kind : std::uint8_t {
    none,
    agree,  // agree with all ranks on the plan and on weights, then call StepTerms::agree()
    look,   // look for NaN and Inf in all gradients on all ranks, then call Step::looked()
    start,  // start the bucket, which counts as under way already, and call Step::bucket_ended() when it has ended
  };
  Kind kind = Kind::none;
  std::uint32_t bucket = 0;
  StepInfo info = {};
};

/// The result of a step that has ended.
struct StepResult {
  StepOutcome outcome;
  bool as_usual;              // the step was neither skipped, flushed nor captured
  std::uint32_t micro_steps;  // the largest number that any tensor had
};

class Step {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Action = StepAction;
  using End = StepResult;

  /// `session` is the session's number in tickets, from 1. `only_finish_reports`: see Faults.
  Step(std::uint32_t session, Nonfinite nonfinite, bool only_finish_reports = false)
      : terms(nonfinite), faults(only_finish_reports), session_(session) {}

  StepTerms terms;
  SyncSchedule modes;
  StepBuckets buckets;  // public to be read; code outside may change it only by accumulate() and start_all()
  Faults faults;

  // These are called before the first step.
  void add_tensor() { buckets.add_tensor(); }
  /// Takes the plan of all tensors that were added. Buckets start in the plan's order.
  void set_plan(const plan::Plan& plan);
  /// Continues from a saved state.
  void resume(std::uint64_t step, const SavedTerms& saved);
  /// Continues between steps from the point at which `before`, the steps of the same session in the previous world, had
  /// begun its last step.
  void go_on_from(const Step& before);

  // These are called between steps.
  /// Throws Error(invalid_argument), which names `call`, if a step is under way.
  void require_between(const char* call) const;
  /// Lets the next step carry all residuals. Throws Error(invalid_argument) if a step is under way.
  void flush_next();
  /// Sets this rank's weight. Throws Error(invalid_argument) if a step is under way, if the weight is negative or not
  /// finite, or if the session's first weight comes after its first step.
  void set_weight(double samples);
  /// Sets the number of the step that replays of captured steps have reached.
  void jump_to(std::uint64_t step);

  /// Marks the tensor as ready, which may be done once in a step. Returns the tensor's ticket.
  Ticket ready(std::uint32_t tensor, Time now);
  /// Ends the step once all its buckets have ended. A `captured` step runs only when its graph does, so the next step
  /// gets the same number.
  StepResult end(bool nonfinite, bool captured);

  // The thread that communicates calls these.
  /// Returns the next action. `waits` says that the caller does nothing else until, for example, the step has ended.
  [[nodiscard]] StepAction next(bool waits, Time now);
  /// Takes the ranks with NaN or Inf in a gradient. If there are any, the step is skipped and ends here.
  void looked(std::vector<int> nonfinite_ranks);
  void bucket_ended(std::uint32_t bucket, bool nonfinite);
  /// Whether all tensors are ready, no bucket has started, and the step consists of plain sums alone. Then all buckets
  /// may start at once; StepBuckets::start_all() and end_all() take the place of next() and bucket_ended().
  [[nodiscard]] bool may_start_all() const;
  void end_all(bool nonfinite);
  /// Sets whether the last bucket of each coming step is held for a caller that waits (StepInfo::InCall).
  void decide_last(bool in_call) noexcept { last_ = {in_call, terms.has_agreed(), last_.ready}; }
  [[nodiscard]] bool last_decided() const noexcept { return last_.decided; }

  // The state as other classes see it.
  [[nodiscard]] std::uint32_t session() const noexcept { return session_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const StepOutcome& outcome() const noexcept { return outcome_; }
  [[nodiscard]] bool under_way() const noexcept { return !faults.failed() && buckets.under_way(); }
  /// Whether next() has an action for a thread that does not wait, or a bucket is under way.
  [[nodiscard]] bool has_work(Time now) const { return to_look() || may_start(false, now) || under_way(); }
  /// Whether the next bucket could start, at least for a caller that waits.
  [[nodiscard]] bool startable() const {
    return !faults.failed() && buckets.next_is_whole() && (looked_ || !looks_first());
  }
  [[nodiscard]] bool to_look() const { return !faults.failed() && looks_first() && !looked_ && buckets.whole(); }
  [[nodiscard]] bool holds_last() const { return last_.in_call && !terms.weighted() && buckets.next_is_last(); }
  /// Whether this step begins with a look for NaN and Inf. A step that carries all residuals does, because a NaN in its
  /// gradients would lose them.
  [[nodiscard]] bool looks_first() const {
    return terms.skips() || terms.flushes() || modes.precedes_local_steps(number_);
  }
  /// Returns what the coming buckets have in common.
  [[nodiscard]] StepInfo info() const { return terms.info(number_); }

 private:
  struct Last {
    bool in_call = false;
    bool decided = false;  // whether in_call is known
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
