#include "session/engine/coming_steps.hpp"

namespace gradwire::session {

bool ComingSteps::reduce_small() {
  bool nonfinite = false;
  const auto applies = [this] {
    core_.progress.state.assert_held();
    const bool may = small_ && core_.step.may_start_all() && !core_.parts.look_at_buckets(core_.step.number());
    if (may) {
      core_.step.buckets.start_all();
    }
    return may;
  };
  const auto reduce = [&] {
    try {
      StepInfo info = core_.settled_step().info();
      core_.parts.tune(info);
      nonfinite = core_.runner->small()->reduce(*core_.plan, core_.tensors.memory(), info);
    } catch (...) {
      core_.rethrow_given_up(true);
    }
  };
  return core_.progress.drive_once(applies, reduce, [&] {
    core_.progress.state.assert_held();
    core_.step.end_all(nonfinite);
  });
}

void ComingSteps::decide(bool undecided) {
  core_.progress.wire.assert_held();
  const std::uint64_t revision = core_.parts.revision();
  if (!undecided && decided_for_ == revision) {
    if (may_get_small()) {
      look_for_residuals();
    }
    return;
  }
  decided_for_ = revision;
  const Probes* probes = core_.runner->probes();
  const SmallSteps* steps = core_.runner->small();
  StepInfo coming;
  core_.parts.tune(coming);
  const bool has_agreed = core_.settled_step().terms.has_agreed();
  const bool in_call = has_agreed && probes != nullptr && probes->ends_in_call(*core_.plan, coming.choices);
  const bool takes = has_agreed && steps != nullptr && core_.parts.background() == nullptr &&
                     steps->takes(*core_.plan, coming.choices);
  {
    const MutexLock lock(core_.progress.state);
    core_.step.decide_last(in_call);
    may_be_small_ = takes;
  }
  look_for_residuals();
}

// Residuals of a codec that is no longer used, and residuals that were loaded, are added in the next step, which is
// therefore not small.
void ComingSteps::look_for_residuals() {
  const MutexLock lock(core_.progress.state);
  small_ = may_be_small_ && !core_.runner->small()->has_to_add();
}

}  // namespace gradwire::session
