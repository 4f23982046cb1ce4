// Core holds what the pieces of an engine share: the tensors, the step and the plan of one world, the runner that
// reduces them, the parts, and how an error ends the session. `progress` has the two locks, `state` and `wire`. The
// thread safety analysis does not know that all pieces have the same core, so functions that one piece calls on another
// begin with assert_held().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/engine/progress.hpp"
#include "session/part/part_set.hpp"
#include "session/part/step_comparison.hpp"
#include "session/runner/runner.hpp"
#include "session/step/step.hpp"
#include "session/step/step_watch.hpp"
#include "session/tensors/tensors.hpp"

namespace gradwire::session {

/// The arguments of an engine's constructor, apart from its runner.
struct EngineSettings {
  Policy policy;
  SessionOptions options;
  PartTable parts;
  /// The caller may undo a step between the two halves of finish(). Only finish() then reports an error that the end of
  /// another rank may have caused; other calls behave as if the step were going to end.
  bool undoable = false;
  /// The ranks, by numbers that stay the same in the next world; empty for a process that is in no world yet. If unset,
  /// ranks are numbered 0, 1, and so on.
  std::optional<std::vector<std::uint32_t>> members = {};
  int copies_of_rows = 1;  // used for tables whose SessionTableOptions::copies is 0
};

struct Core {
  Core(std::unique_ptr<Runner> r, EngineSettings given);

  const EngineSettings settings;
  const std::unique_ptr<Runner> runner;  // guarded by `wire`, except for the functions that any thread may call
  std::atomic<bool> no_sync{false};

  // These are written under `state`. The plan and the parts made with it stay once they exist.
  Tensors tensors{*runner};
  Step step GUARDED_BY(progress.state);
  StepWatch watch GUARDED_BY(progress.state);
  std::optional<plan::Plan> plan;
  PartSet parts;
  StepComparison comparison{*runner};  // between the parts of all ranks; used under `wire`, except for its counts

  std::atomic<bool> error_recorded = false;  // the error event has been recorded, since a session gives up only once
  Progress progress;

  /// The step, for the thread that makes steps and for a thread that communicates under `wire`. They may read only
  /// fields that change between steps, when nothing is under way, such as the step's number and the loss scale.
  [[nodiscard]] const Step& settled_step() const NO_THREAD_SAFETY_ANALYSIS { return step; }

  /// Runs `call` of the public interface and remembers an Error, so that other ranks can be told why this one is gone.
  template <typename Call>
  auto checked(Call&& call) {
    try {
      return std::forward<Call>(call)();
    } catch (const Error& error) {
      const MutexLock lock(progress.state);
      step.faults.misused(error);
      throw;
    }
  }
  /// Runs `call` under `wire`. Any exception ends the session on every rank and is rethrown as an Error.
  template <typename Call>
  void on_wire(Call&& call) {
    const MutexLock lock(progress.wire);
    or_give_up(std::forward<Call>(call));
  }
  /// Does the same as on_wire() for a caller that already holds `wire`.
  template <typename Call>
  void or_give_up(Call&& call) REQUIRES(progress.wire) {
    try {
      std::forward<Call>(call)();
    } catch (...) {
      rethrow_given_up(true);
    }
  }
  /// Gives up with the current exception and throws it as an Error; must be called inside a catch block. `to_caller`
  /// says that this Error reaches the caller of a public function.
  [[noreturn]] void rethrow_given_up(bool to_caller);
  /// Ends the session on this rank. With `for_good` no other engine takes over, and the caller is told of `error`.
  void give_up(const Error& error, bool for_good = false) noexcept;

  /// Throws the session's failure, unless only finish() reports it.
  void throw_if_failed() REQUIRES(progress.state) { step.faults.throw_in_call(); }
  [[nodiscard]] bool failed() const {
    const MutexLock lock(progress.state);
    return step.faults.failed();
  }
  /// Whether the step has failed and only finish() reports that.
  [[nodiscard]] bool is_void() const REQUIRES(progress.state) { return step.faults.left_to_finish(); }
  /// Whether finish() reports `error`, so that the call that caught it returns normally.
  [[nodiscard]] bool leaves_to_finish(const Error& error) const {
    const MutexLock lock(progress.state);
    return step.faults.leaves_to_finish(error);
  }

  [[nodiscard]] plan::PlanOptions plan_options() const;
  /// Makes the plan and the parts that it asks for, unless there is a plan already.
  void make_plan() REQUIRES(progress.state);
  /// `held` becomes PartInputs::held.
  [[nodiscard]] PartInputs part_inputs(const SavedState* held = nullptr) REQUIRES(progress.state);
  void reset_step(StepWatch::Time now) REQUIRES(progress.state);
  /// Throws Error(invalid_argument), which names `call`, if a step is under way.
  void require_between_steps(const char* call);
  /// Whether broadcasts travel in packed frames, as the policy's gradients do.
  [[nodiscard]] bool packs_broadcasts() const;
};

}  // namespace gradwire::session
