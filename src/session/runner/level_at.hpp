// How a bucket is reduced in a step: as its policy says for the step, or as it was chosen at run time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/plan.hpp"
#include "policy/stage.hpp"
#include "session/step/step_info.hpp"

namespace gradwire::session {

/// Whether the bucket's codec is chosen at run time in this step.
[[nodiscard]] inline bool is_chosen(const plan::Bucket& bucket, const StepInfo& step) noexcept {
  return !bucket.levels.empty() && !step.choices.empty();
}

/// Returns the codecs and the algorithm of the bucket in this step.
[[nodiscard]] inline policy::Level level_at(const plan::Bucket& bucket, const StepInfo& step) {
  if (step.flush || step.plain) {
    return {bucket.algorithm, policy::exact_stage(policy::stage_at(bucket.stages, step.step))};
  }
  if (is_chosen(bucket, step)) {
    return bucket.levels[step.choices[bucket.id].level];
  }
  return {bucket.algorithm, policy::stage_at(bucket.stages, step.step)};
}

/// Returns the choice of one level for all buckets, or their last one where they have fewer.
[[nodiscard]] inline std::vector<BucketChoice> uniform_choices(const plan::Plan& plan, std::size_t level) {
  std::vector<BucketChoice> choices;
  for (const plan::Bucket& bucket : plan.buckets) {
    choices.push_back({.level = bucket.levels.empty() ? 0 : std::min(level, bucket.levels.size() - 1)});
  }
  return choices;
}

}  // namespace gradwire::session
