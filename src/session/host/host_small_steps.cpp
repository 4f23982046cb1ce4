#include "session/host/host_small_steps.hpp"

#include <algorithm>

namespace gradwire::session {

bool HostSmallSteps::takes(const plan::Plan& plan, std::span<const BucketChoice> choices) const {
  return !plan.has_modes() && SmallSums::are_small(plan) &&
         std::all_of(plan.buckets.begin(), plan.buckets.end(), [&](const plan::Bucket& bucket) {
           return calls_.sums_natively(plan, bucket, {.choices = choices});
         });
}

bool HostSmallSteps::reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) {
  const bool nonfinite = sums_.reduce(plan, memory, step);
  executors_.steps().skip(plan.buckets.size());
  statistics_.change([&](std::vector<Statistics>& groups) { sums_.count(plan, groups); });
  return nonfinite;
}

}  // namespace gradwire::session
