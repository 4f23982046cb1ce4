// Steps of small buckets over host memory.
#include "session/host/bucket_runner.hpp"

namespace gradwire::session {

// What LaneRun::native would come to: a sum of the transport's own, without weights and residuals.
bool BucketRunner::takes(const plan::Plan& plan, std::span<const BucketChoice> choices) const {
  if (transport_->world_size() == 1 || plan.deterministic || plan.has_modes() || !residuals_.empty() ||
      !SmallSums::are_small(plan)) {
    return false;
  }
  return std::all_of(plan.buckets.begin(), plan.buckets.end(), [&](const plan::Bucket& bucket) {
    return sums_natively(bucket, choices) && has_native(bucket.dtype);
  });
}

bool BucketRunner::reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) {
  const bool nonfinite = small_.reduce(plan, memory, step);
  executor_.skip(plan.buckets.size());
  const std::lock_guard lock(statistics_mutex_);
  small_.count(plan, statistics_);
  return nonfinite;
}

}  // namespace gradwire::session
