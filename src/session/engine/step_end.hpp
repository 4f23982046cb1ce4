// StepEnd is the end of a step, which finish() makes in two halves: prepare() reduces the rest of the step, and
// commit() delivers, counts and compares its results and decides how the coming steps are reduced.
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

  /// Values that prepare() hands to commit().
  struct Finishing {
    std::uint64_t ticks = 0;  // observe::ticks() when prepare() began
    std::chrono::steady_clock::time_point begin = {};
    bool was_small = false;
  };
  /// Reduces the rest of the step, which does not count yet.
  [[nodiscard]] Finishing prepare();
  /// Makes the step count: delivers its results and decides how the coming steps are reduced.
  StepOutcome commit(const Finishing& finishing);
  /// The outcome of the last step that was committed.
  [[nodiscard]] const StepOutcome& last_outcome() const noexcept { return last_outcome_; }

 private:
  struct Ended {
    std::chrono::steady_clock::time_point at;
    Step::End end;
    bool read = false;          // a part reads the results of this step
    std::vector<View> results;  // if so
    bool undecided = false;     // how the last bucket of the coming steps is reduced
    bool may_get_small = false;
  };

  void check_may_finish();
  void check_all_ready();
  /// Lets the parts that ranks change together with each step prepare this step.
  void prepare_parts();
  /// Lets the same parts commit this step.
  void commit_parts();
  /// Ends a step whose results have arrived; finish() began at `begin`.
  [[nodiscard]] Ended end_step(std::chrono::steady_clock::time_point begin, bool was_small);
  /// Does what ranks do together at the end of some steps, such as comparisons, and decides about the coming steps.
  void conclude(const Ended& ended);
  [[nodiscard]] bool has_results_read(std::uint64_t step) const;
  /// Delivers the gradients and parameters that the background part has for this step; returns whether NaN or Inf is in
  /// them.
  [[nodiscard]] bool deliver();
  /// Returns the memory that holds the same values on all ranks after this step: it includes parameters that were
  /// synchronised, but not gradients of local steps.
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
