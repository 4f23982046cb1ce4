// Steps of small buckets over host memory.
#include "session/host/bucket_runner.hpp"

namespace gradwire::session {

bool BucketRunner::takes(const plan::Plan& plan, std::span<const BucketChoice> choices) const {
  return !plan.has_modes() && SmallSums::are_small(plan) &&
         std::all_of(plan.buckets.begin(), plan.buckets.end(),
                     [&](const plan::Bucket& bucket) { return sums_natively(plan, bucket, {.choices = choices}); });
}

bool BucketRunner::reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) {
  const bool nonfinite = small_.reduce(plan, memory, step);
  executor_.skip(plan.buckets.size());
  const MutexLock lock(statistics_mutex_);
  small_.count(plan, statistics_);
  return nonfinite;
}

}  // namespace gradwire::session
