// When each bucket is synchronised: the plan's modes, and by how many steps their beginning was put off.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "session/state/state_file.hpp"

namespace gradwire::session {

class SyncSchedule {
 public:
  SyncSchedule() = default;
  explicit SyncSchedule(const plan::Plan& plan);

  /// The bucket's mode, with the step at which it really begins.
  [[nodiscard]] const Sync& of(std::uint32_t bucket) const { return modes_[bucket]; }
  /// Whether the bucket is not as `step` in this step.
  [[nodiscard]] bool active(std::uint32_t bucket, std::uint64_t step) const;
  /// Whether the step carries residuals of the bucket, or of any, that must not be lost, since local steps come after
  /// it.
  [[nodiscard]] bool precedes_local_steps(std::uint32_t bucket, std::uint64_t step) const;
  [[nodiscard]] bool precedes_local_steps(std::uint64_t step) const;
  /// The step was skipped: the next one carries these residuals, and local steps begin one later.
  void put_off(std::uint64_t step);

  void load(const plan::Plan& plan, const SavedState& state);
  /// The bucket's mode as it would be after load().
  [[nodiscard]] static Sync after_load(const plan::Bucket& bucket, const SavedState& state);

 private:
  std::vector<Sync> modes_;  // by bucket
  bool all_step_ = true;     // the look at each of many buckets would be for nothing
};

}  // namespace gradwire::session
