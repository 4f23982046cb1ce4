// ComingSteps holds how the coming steps are reduced, as ranks have decided from the plan and from the codecs that
// parts have chosen.
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
  /// Whether the coming steps become small once there are no residuals left to add.
  [[nodiscard]] bool may_get_small() const noexcept { return may_be_small_ && !small_; }
  /// Drops the decision, because residuals may have been loaded. Called under both locks.
  void forget() noexcept { may_be_small_ = small_ = false; }

  /// The only fast path: reduces a step of small native sums on the thread that calls finish(), without schedules,
  /// lanes or the progress thread. Returns false if the step is not a small one.
  bool reduce_small();
  /// Decides how the last bucket of the coming steps is reduced, and whether these steps are small. It asks the runner
  /// only if `undecided` is set or if codecs were chosen anew. Called under `wire`.
  void decide(bool undecided);

 private:
  void look_for_residuals();

  Core& core_;
  // Both fields are written under both locks and read under either.
  bool may_be_small_ = false;
  bool small_ = false;
  // PartSet::revision() at the last decision.
  std::optional<std::uint64_t> decided_for_ GUARDED_BY(core_.progress.wire);
};

}  // namespace gradwire::session
