#include "session/device/device_room.hpp"

#include <algorithm>
#include <numeric>

#include "session/runner/level_at.hpp"

namespace gradwire::session {

using exchange::CurrentDevice;

void DeviceRoom::reserve(const plan::Plan& plan, const StepInfo& step) {
  if (held_.remembers()) {
    return;  // a step that can be undone is never captured
  }
  require_no_capture(device_, "reserve");
  const CurrentDevice current(device_);
  device_.arena().set_fixed(false);
  device_.follow_caller();
  held_.residuals().set_frees(DeviceResiduals::Frees::none_for_ever);
  before_.reset();
  if (!step.choices.empty()) {  // another codec may be chosen before the capture begins
    std::size_t count = 0;
    for (const plan::Bucket& bucket : plan.buckets) {
      count = std::max(count, bucket.levels.size());
    }
    std::vector<std::size_t> levels(count);
    std::iota(levels.begin(), levels.end(), std::size_t{0});
    reserve_levels(plan, step, levels);
  }
  pipeline_.reserve(calls_, plan, step, false, memory_);
  held_.residuals().clear_room();
  device_.lead_caller();
  note();
}

// Memory of residuals is kept from here on, so that each step finds its own where this has seen it.
bool DeviceRoom::take(const plan::Plan& plan, const StepInfo& step, std::span<const std::size_t> levels) {
  const CurrentDevice current(device_);
  DeviceResiduals& residuals = held_.residuals();
  before_ = Before{device_.arena().slabs().size(), residuals.room(), residuals.frees()};
  residuals.set_frees(std::max(residuals.frees(), DeviceResiduals::Frees::none));
  try {
    reserve_levels(plan, step, levels);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) {
      throw;
    }
    give_back();
    return false;
  }
  note();
  return true;
}

void DeviceRoom::give_back() {
  if (before_) {
    const CurrentDevice current(device_);
    held_.residuals().go_back_to(before_->room);
    held_.residuals().set_frees(before_->frees);
    device_.wait(device_.mark(), timeout_);  // new room of residuals may be about to be cleared
    device_.arena().drop_slabs(before_->slabs);
    before_.reset();
    note();
  }
}

// A step finds residuals of the step before it, or none, at any level.
void DeviceRoom::reserve_levels(const plan::Plan& plan, const StepInfo& step, std::span<const std::size_t> levels) {
  for (const bool folds : {false, true}) {
    for (const std::size_t level : levels) {
      const std::vector<BucketChoice> choices = uniform_choices(plan, level);
      StepInfo other = step;
      other.choices = choices;
      pipeline_.reserve(calls_, plan, other, folds, memory_);
    }
  }
}

}  // namespace gradwire::session
