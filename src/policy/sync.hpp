// When tensors are synchronised: the modes that a policy may ask for, their texts, and the steps at which they act.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/policy.hpp"

namespace gradwire::policy {

/// With fewer local steps than this, outer momentum only amplifies their change.
inline constexpr std::uint32_t kLeastStepsOfOuter = 16;
inline constexpr std::uint32_t kMostEvery = 1U << 20;
inline constexpr std::uint32_t kMostStaleness = 64;  // each late step keeps a copy of the gradients
inline constexpr std::uint32_t kMostRowStaleness = 1U << 20;
inline constexpr std::string_view kSyncNeedsACodec =
    "codec \"auto\" chooses by what a step takes, which only sync = \"step\" shows; name a codec";

inline constexpr std::string_view kRowsNeedATable =
    "only rows that were touched are to travel, and the session does not know their ids; make a gradwire::Table of "
    "it, or another sync";

/// The error in `sync` and what to write instead; empty if there is none.
[[nodiscard]] std::string problem_of(const Sync& sync);
/// Whether the mode is `step`, or every = 1, which is defined to be the same.
[[nodiscard]] bool is_step(const Sync& sync);
/// "step", "every 32 (outer lr 0.7, momentum 0.9), offset 3, from step 100", "async, staleness 4", "rows, staleness
/// 16". `digits`: significant digits of numbers that are no integers; 0 for as many as tell two values apart.
[[nodiscard]] std::string to_string(const Sync& sync, int digits = 3);
/// The number of steps by which a result or a parameter may lag behind: "exact", "32 local steps", "4 steps".
[[nodiscard]] std::string bound_of(const Sync& sync);

/// Whether the mode has begun at this step; earlier steps use `step`.
[[nodiscard]] inline bool active(const Sync& sync, std::uint64_t step) {
  return !is_step(sync) && step >= sync.from_step;
}
/// Whether parameters are synchronised in this step, before its optimizer runs, so that `every` local steps lie between
/// two synchronisations. `offset` is the bucket's.
[[nodiscard]] bool syncs_parameters(const Sync& sync, std::uint32_t offset, std::uint64_t step);
/// Whether this is the last step before local steps begin. It travels exactly, since residuals of gradients are of no
/// use to parameters.
[[nodiscard]] bool precedes_local_steps(const Sync& sync, std::uint64_t step);

/// The policy of one tensor, before there is a plan of all.
[[nodiscard]] TensorPolicy policy_of(const Policy& policy, const TensorInfo& tensor);

}  // namespace gradwire::policy
