// Reductions where there is a device path: who takes part in a communicator's agreement, what is recorded in a group,
// and what becomes of it at the group's end.
#pragma once

#include <functional>

#include "plugins/nccl_preload/group.hpp"
#include "plugins/nccl_preload/requests.hpp"

namespace gradwire::nccl_preload {

/// Whether reduce() is to be asked: this build compresses, and it is the job that calls.
[[nodiscard]] bool may_compress() noexcept;

/// The library's own function with the caller's arguments.
using Forward = std::function<ncclResult_t()>;
/// Compresses a reduction, records it in its group, or hands it on.
[[nodiscard]] ncclResult_t reduce(const Request& request, const Forward& forward) noexcept;

/// What a group has recorded, once NCCL has run the rest of it.
[[nodiscard]] ncclResult_t run_recorded(Group& group) noexcept;
/// Hands it to NCCL instead, whose group is still open.
[[nodiscard]] ncclResult_t forward_recorded(Group& group) noexcept;
/// Forgets what the open group of this thread has recorded for a communicator that ends.
void forget_recorded(const CommunicatorState& ended) noexcept;

}  // namespace gradwire::nccl_preload
