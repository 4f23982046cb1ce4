// When tensors are synchronised: what a policy may ask for, in words, and at which steps it happens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/policy.hpp"

namespace gradwire::policy {

/// Fewer local steps than this make a change that momentum of its own only amplifies.
inline constexpr std::uint32_t kLeastStepsOfOuter = 16;
inline constexpr std::uint32_t kMostEvery = 1U << 20;
inline constexpr std::uint32_t kMostStaleness = 64;  // each step of it keeps a copy of the gradients
inline constexpr std::uint32_t kMostRowStaleness = 1U << 20;
inline constexpr std::string_view kSyncNeedsACodec =
    "codec \"auto\" chooses by what a step takes, which only sync = \"step\" shows; name a codec";

inline constexpr std::string_view kRowsNeedATable =
    "only rows that were touched are to travel, and the session does not know their ids; make a gradwire::Table of "
    "it, or another sync";

/// What is wrong with it and what to write instead; empty where nothing is.
[[nodiscard]] std::string problem_of(const Sync& sync);
/// Whether all steps are as `step`: every = 1 is defined to be, and nothing else but "step".
[[nodiscard]] bool is_step(const Sync& sync);
/// "step", "every 32 (outer lr 0.7, momentum 0.9), offset 3, from step 100", "async, staleness 4", "rows, staleness
/// 16". `digits`: of numbers that are no integers; 0 for all that tell two values apart.
[[nodiscard]] std::string to_string(const Sync& sync, int digits = 3);
/// By how many steps a result or a parameter may lag behind: "exact", "32 local steps", "4 steps".
[[nodiscard]] std::string bound_of(const Sync& sync);

/// Whether the step belongs to the mode, and is not still as `step`.
[[nodiscard]] inline bool active(const Sync& sync, std::uint64_t step) {
  return !is_step(sync) && step >= sync.from_step;
}
/// Whether parameters are synchronised in this step: before its optimizer runs, so that `every` local steps lie
/// between two synchronisations. `offset` as of the bucket.
[[nodiscard]] bool syncs_parameters(const Sync& sync, std::uint32_t offset, std::uint64_t step);
/// The last step before local steps begin travels exactly: residuals of gradients are of no use to parameters.
[[nodiscard]] bool precedes_local_steps(const Sync& sync, std::uint64_t step);

/// What the policy asks of one tensor, before a plan is made of all.
[[nodiscard]] TensorPolicy policy_of(const Policy& policy, const TensorInfo& tensor);

}  // namespace gradwire::policy
