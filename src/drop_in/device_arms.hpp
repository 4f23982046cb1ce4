// The ways in which a call on a device can be compressed. Way 0 of a choice is the library's own call, and way i is
// arm i - 1 of this table.
#pragma once

#include <cstddef>

#include "gradwire/reduction.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

struct DeviceArm {
  Algorithm algorithm = Algorithm::two_shot;
  policy::Stage stage = {};
};

/// How many ways a call has that is chosen for codec = "auto", with the library's own.
[[nodiscard]] inline std::size_t ways_on_devices(const plan::CallPlan& plan) noexcept { return 1 + plan.ways.size(); }
/// `way` is above 0.
[[nodiscard]] inline DeviceArm arm_of(const plan::CallPlan& plan, std::size_t way) {
  return {.algorithm = plan.policy.algorithm, .stage = plan.ways[way - 1]};
}

}  // namespace gradwire::drop_in
