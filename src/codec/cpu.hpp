// Which of Highway's targets this CPU runs. Highway's library answers the same, but distributions have it only as a
// shared object, which compute nodes lack.
#pragma once

#include <cstdint>

namespace gradwire::codec {

/// `target`: one bit of HWY_TARGETS. False for targets that are not known here.
[[nodiscard]] bool cpu_runs(std::int64_t target) noexcept;

}  // namespace gradwire::codec
