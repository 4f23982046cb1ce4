// The ways to make a call over NCCL under codec = "auto", and a guess, by the model of GPUs, how long each takes,
// before any is measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drop_in/calls.hpp"
#include "gradwire/policy.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

/// A way to compress a call.
struct DeviceWay {
  policy::Stage stage;
  bool node_kernel = false;  // by one kernel inside the node; else by messages
};

/// Returns the ways from 1 on: those of the plan by messages, then, if `node_kernel`, those that one kernel can make.
/// Their numbers follow from the policy alone, so that recorded choices mean the same on every machine.
[[nodiscard]] std::vector<DeviceWay> device_ways(const plan::CallPlan& plan, DType dtype, bool node_kernel);

/// Returns the time of a call of `bytes` by NCCL's own call, first, and by each of the ways, over that of NCCL's. Where
/// the policy does not say the link, nothing is known of ways by messages, which then count as NCCL's call; without
/// ways by one kernel nothing is returned. Guesses about an unknown link would keep good ways from being tried. The
/// link is that of a node, and the policy's ranks_per_node share it; what is inside nodes counts as fast. All ranks
/// with the same policy get the same.
[[nodiscard]] std::vector<double> guess_ways(const Policy& policy, std::span<const DeviceWay> ways,
                                             const ChoiceClass& what, std::uint64_t bytes, int world_size);

}  // namespace gradwire::drop_in
