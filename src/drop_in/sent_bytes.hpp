// What a compressed call sends, computed before it is made: for a dry run.
#pragma once

#include <cstdint>

#include "drop_in/router.hpp"

namespace gradwire::drop_in {

/// Bytes of the frames that a rank sends for such a call, as a mean over the ranks. Which nodes there are is not known
/// here: an algorithm that depends on them counts as two_shot.
[[nodiscard]] std::uint64_t sent_bytes(const Router::Route& route, const Policy& policy);

}  // namespace gradwire::drop_in
