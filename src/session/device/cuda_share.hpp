// Says what share of a device a policy lets its work take.
#pragma once

#include "exchange/stream/stream_cuda.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::session {

/// Returns the share that a policy's [device] gives to a device's work.
[[nodiscard]] inline exchange::CudaShare share_of(const Policy::Device& device) {
  return {.most_blocks = device.blocks.value_or(0), .high_priority = device.high_priority};
}

}  // namespace gradwire::session
