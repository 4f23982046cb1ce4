// Decides which collective call a bucket over host memory is in a step.
#pragma once

#include "exchange/resolved_call.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/transport.hpp"
#include "plan/plan.hpp"
#include "session/runner/level_at.hpp"
#include "session/step/step_info.hpp"

namespace gradwire::session {

class BucketCalls {
 public:
  /// The transport must outlive this.
  explicit BucketCalls(const Transport& transport) : transport_(transport) {}

  /// Returns the request of a bucket to the collective, without the residuals that are kept for it.
  [[nodiscard]] exchange::CallRequest request(const plan::Plan& plan, const plan::Bucket& bucket,
                                              const StepInfo& step) const;
  [[nodiscard]] exchange::RankGroup group(const plan::Plan& plan) const {
    return {transport_.rank(), transport_.world_size(), plan.tiers};
  }
  /// Whether the bucket is reduced by the transport's own sum.
  [[nodiscard]] bool sums_natively(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step) const;

 private:
  const Transport& transport_;
};

}  // namespace gradwire::session
