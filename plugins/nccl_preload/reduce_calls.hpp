// Reductions in a build with a device path: which calls take part in a communicator's agreement, which are recorded in
// a group, and how the group's end makes them.
#pragma once

#include <functional>
#include <optional>

#include "plugins/nccl_preload/group.hpp"
#include "plugins/nccl_preload/requests.hpp"

namespace gradwire::nccl_preload {

/// Whether to call reduce(): this build can compress, and the job itself makes the call, not NCCL.
[[nodiscard]] bool may_compress() noexcept;

/// The library's own function with the caller's arguments.
using Forward = std::function<ncclResult_t()>;
/// Compresses a reduction, records it in its group, or forwards it.
[[nodiscard]] ncclResult_t reduce(const NcclCall& request, const Forward& forward) noexcept;

/// Takes what a communicator's rank needs to answer the others in their agreement, if there are others and there is a
/// device path. Throws Error(out_of_memory).
[[nodiscard]] std::optional<Reserved> reserve(ncclComm_t comm, bool shares);

/// Makes the agreements and the recorded calls of a group after NCCL has run the rest of it.
[[nodiscard]] ncclResult_t run_recorded(CallGroup& group) noexcept;
/// Forwards the recorded calls to NCCL instead, whose group is still open.
[[nodiscard]] ncclResult_t forward_recorded(CallGroup& group) noexcept;
/// Removes the calls that the open group of this thread has recorded for a communicator that ends.
void forget_recorded(const CommunicatorState& ended) noexcept;

}  // namespace gradwire::nccl_preload
