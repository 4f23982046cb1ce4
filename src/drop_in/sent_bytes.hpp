// Computes the bytes that a compressed call would send, for a dry run.
#pragma once

#include <cstdint>

#include "drop_in/router.hpp"

namespace gradwire::drop_in {

/// Bytes of the frames that a rank sends for such a call, as a mean over the ranks. The nodes are not known here, so an
/// algorithm that depends on them counts as two_shot.
[[nodiscard]] std::uint64_t sent_bytes(const Router::Route& route, const Policy& policy);

}  // namespace gradwire::drop_in
