// The end of a step, in two halves: what finish() waits for, counts, compares and decides.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "session/engine/coming_steps.hpp"
#include "session/engine/core.hpp"
#include "session/engine/device_side.hpp"

namespace gradwire::session {

class StepEnd {
 public:
  StepEnd(Core& core, ComingSteps& coming, DeviceSide& device) : core_(core), coming_(coming), device_(device) {}

  /// What prepare() tells commit().
  struct Finishing {
    std::uint64_t ticks = 0;  // observe::ticks() when it began
    std::chrono::steady_clock::time_point begin = {};
    bool was_small = false;
  };
  /// Reduces all that is left of the step. Nothing of the step counts yet.
  [[nodiscard]] Finishing prepare();
  /// Makes the step count: delivers its results and decides how the coming steps are reduced.
  StepOutcome commit(const Finishing& finishing);
  /// The outcome of the last step that was committed.
  [[nodiscard]] const StepOutcome& last_outcome() const noexcept { return last_outcome_; }

 private:
  struct Ended {
    std::chrono::steady_clock::time_point at;
    Step::End end;
    std::vector<View> results;  // where ranks compare them
    bool undecided = false;     // how coming steps travel
    bool may_get_small = false;
  };

  void check_may_finish();
  void check_all_ready();
  /// Lets the parts that ranks change with each step prepare this one; and commit it.
  void prepare_parts();
  void commit_parts();
  /// Ends a step whose results have arrived; finish() began at `begin`.
  [[nodiscard]] Ended end_step(std::chrono::steady_clock::time_point begin, bool was_small);
  /// What ranks do together at the end of some steps, and what follows from it for the coming ones.
  void conclude(const Ended& ended);
  [[nodiscard]] bool compares_results(const StepOutcome& outcome) const;
  /// Gradients and parameters of a step that has ended; returns whether NaN or Inf is in them.
  [[nodiscard]] bool deliver();
  /// What all ranks hold alike after this step: not gradients of local steps, but parameters that were synchronised.
  [[nodiscard]] std::vector<View> comparable_results() const REQUIRES(core_.progress.state);
  void see_step_end(StepWatch::Time now, double exposed, const Statistics& totals, std::uint32_t micro_steps)
      REQUIRES(core_.progress.state);
  /// The last step, for the thread in finish(), which alone writes it.
  [[nodiscard]] const StepSeen& last_seen() const NO_THREAD_SAFETY_ANALYSIS { return core_.watch.last(); }

  Core& core_;
  ComingSteps& coming_;
  DeviceSide& device_;
  StepOutcome last_outcome_;
};

}  // namespace gradwire::session
