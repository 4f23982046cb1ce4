#include "session/step/sync_schedule.hpp"

#include <algorithm>

#include "policy/sync.hpp"

namespace gradwire::session {

SyncSchedule::SyncSchedule(const plan::Plan& plan) {
  modes_.reserve(plan.buckets.size());
  for (const plan::Bucket& bucket : plan.buckets) {
    modes_.push_back(bucket.sync);
    all_step_ = all_step_ && policy::is_step(bucket.sync);
  }
}

bool SyncSchedule::active(std::uint32_t bucket, std::uint64_t step) const {
  return bucket < modes_.size() && policy::active(modes_[bucket], step);
}

bool SyncSchedule::precedes_local_steps(std::uint32_t bucket, std::uint64_t step) const {
  return bucket < modes_.size() && policy::precedes_local_steps(modes_[bucket], step);
}

bool SyncSchedule::precedes_local_steps(std::uint64_t step) const {
  return !all_step_ && std::any_of(modes_.begin(), modes_.end(),
                                   [&](const Sync& sync) { return policy::precedes_local_steps(sync, step); });
}

void SyncSchedule::put_off(std::uint64_t step) {
  for (Sync& sync : modes_) {
    if (policy::precedes_local_steps(sync, step)) {
      ++sync.from_step;
    }
  }
}

Sync SyncSchedule::after_load(const plan::Bucket& bucket, const SavedSyncModes& saved) {
  Sync sync = bucket.sync;
  if (sync.mode == Sync::Mode::every) {
    for (const SavedLocalSteps& local : saved.local_steps) {
      if (std::any_of(bucket.parts.begin(), bucket.parts.end(),
                      [&](const plan::Bucket::Part& part) { return part.tensor == local.tensor; })) {
        sync.from_step = std::max(sync.from_step, local.put_off_to);
      }
    }
  }
  return sync;
}

void SyncSchedule::load(const plan::Plan& plan, const SavedSyncModes& saved) {
  for (const plan::Bucket& bucket : plan.buckets) {
    modes_[bucket.id] = after_load(bucket, saved);
  }
}

}  // namespace gradwire::session
