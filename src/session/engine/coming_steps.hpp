// How the coming steps are reduced: what ranks have decided from the plan and from the codecs that parts have chosen.
#pragma once

#include <cstdint>
#include <optional>

#include "session/engine/core.hpp"

namespace gradwire::session {

class ComingSteps {
 public:
  explicit ComingSteps(Core& core) : core_(core) {}

  /// Whether the coming steps are small (SmallSteps).
  [[nodiscard]] bool small() const noexcept { return small_; }
  /// Whether they are, unless there are residuals to add.
  [[nodiscard]] bool may_get_small() const noexcept { return may_be_small_ && !small_; }
  /// Residuals may have come. Called under both locks.
  void forget() noexcept { may_be_small_ = small_ = false; }

  /// The one fast path: a step of small native sums is made in finish(), on its thread, past schedules, lanes and the
  /// progress thread. Returns whether the step was such a one.
  bool reduce_small();
  /// Decides how the last bucket of the coming steps is reduced, and whether these steps are small. It asks the runner
  /// only if that is `undecided` or if codecs were chosen anew. Called under `wire`.
  void decide(bool undecided);

 private:
  void look_for_residuals();

  Core& core_;
  // Written under both locks, read under either.
  bool may_be_small_ = false;
  bool small_ = false;
  // The Parts::revision() of the last decision.
  std::optional<std::uint64_t> decided_for_ GUARDED_BY(core_.progress.wire);
};

}  // namespace gradwire::session
