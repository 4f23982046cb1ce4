// Guesses, by the model of GPUs, how long each way to make a call over NCCL takes, before any is measured.
#pragma once

#include <cstdint>
#include <vector>

#include "drop_in/calls.hpp"
#include "gradwire/policy.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

/// Returns the time of a call of `bytes` by each way, 0 first, over that of NCCL's own call; nothing where the policy
/// does not say the link: guesses about an unknown one would keep good ways from being tried. The link is that of a
/// node, and the policy's ranks_per_node share it; what is inside nodes counts as fast. All ranks with the same policy
/// get the same.
[[nodiscard]] std::vector<double> guess_ways(const Policy& policy, const plan::CallPlan& plan, const ChoiceClass& what,
                                             std::uint64_t bytes, int world_size);

}  // namespace gradwire::drop_in
