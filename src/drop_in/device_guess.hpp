// The ways to make a call over NCCL under codec = "auto", and a guess, by the model of GPUs, how long each takes,
// before any is measured.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "drop_in/calls.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/policy.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

/// How the ranks exchange what they have encoded.
enum class DeviceMethod : std::uint8_t {
  messages,     // between all ranks
  node_kernel,  // by one kernel inside the node
  tiers,        // the library sums and gathers inside nodes, and messages travel between them
};

/// A way to compress a call.
struct DeviceWay {
  policy::Stage stage;
  DeviceMethod method = DeviceMethod::messages;
  bool offered = true;  // else it only has a number, since other communicators have it
};

/// What the ranks of a communicator have found out that they can do beside messages, the same on every rank.
struct DeviceOffers {
  bool node_kernel = false;
  std::shared_ptr<const exchange::Tiers> tiers = nullptr;  // null: no method of tiers
  std::optional<CodecSpec> intra = std::nullopt;           // in which the library sums inside nodes; none: exact
};

/// Returns the ways from 1 on: those of the plan by messages, then those that one kernel can make, then, if tiers are
/// offered, those of tiers, which keep no residuals. A way has the same number on every machine, so that recorded
/// choices mean the same.
[[nodiscard]] std::vector<DeviceWay> device_ways(const plan::CallPlan& plan, DType dtype, const DeviceOffers& offers);

/// Returns the time of a call of `bytes` by NCCL's own call, first, and by each of the ways, over that of NCCL's;
/// infinite for ways that are not offered. Where the policy does not say the link, nothing is known of ways by messages
/// or tiers, which then count as NCCL's call: guesses about an unknown link would keep good ways from being tried. The
/// link is that of a node, shared by the ranks of a node that `offers` or else the policy's ranks_per_node name; what
/// is inside nodes counts as fast. All ranks with the same policy and offers get the same.
[[nodiscard]] std::vector<double> guess_ways(const Policy& policy, std::span<const DeviceWay> ways,
                                             const DeviceOffers& offers, const ChoiceClass& what, std::uint64_t bytes,
                                             int world_size);

}  // namespace gradwire::drop_in
