// Tells which of Highway's targets this CPU runs. Highway's library answers that too, but distributions have it only as
// a shared object, which compute nodes lack.
#pragma once

#include <cstdint>

namespace gradwire::codec {

/// `target`: one bit of HWY_TARGETS. False for targets that this function does not know.
[[nodiscard]] bool cpu_runs(std::int64_t target) noexcept;

}  // namespace gradwire::codec
