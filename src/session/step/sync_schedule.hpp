// SyncSchedule knows when each bucket is synchronised: it holds the plan's sync modes with the steps at which they
// really begin, since skipped steps put the beginning off.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "session/state/saved_state.hpp"

namespace gradwire::session {

class SyncSchedule {
 public:
  SyncSchedule() = default;
  explicit SyncSchedule(const plan::Plan& plan);

  /// The bucket's mode, with the step at which it really begins.
  [[nodiscard]] const Sync& of(std::uint32_t bucket) const { return modes_[bucket]; }
  /// Whether the bucket follows a sync mode other than "step" in this step.
  [[nodiscard]] bool active(std::uint32_t bucket, std::uint64_t step) const;
  /// Whether the step is the last one before the bucket's local steps. Such a step carries all residuals of the bucket,
  /// which must not be lost.
  [[nodiscard]] bool precedes_local_steps(std::uint32_t bucket, std::uint64_t step) const;
  /// Whether the step is the last one before the local steps of any bucket.
  [[nodiscard]] bool precedes_local_steps(std::uint64_t step) const;
  /// Notes that the step was skipped: if it was to carry residuals before local steps, the next step carries them, and
  /// the local steps begin one step later.
  void put_off(std::uint64_t step);

  void load(const plan::Plan& plan, const SavedSyncModes& saved);
  /// Returns the bucket's mode as it would be after load().
  [[nodiscard]] static Sync after_load(const plan::Bucket& bucket, const SavedSyncModes& saved);

 private:
  std::vector<Sync> modes_;  // by bucket
  bool all_step_ = true;     // all modes are "step", so that there is no need to look at each of many buckets
};

}  // namespace gradwire::session
