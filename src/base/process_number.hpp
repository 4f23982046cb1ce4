// The number of this process in a job whose ranks change: a job that goes on when ranks end gives each process a
// number, and no number twice. Files and ports of a process are named by it, since ranks move up when others end.
#pragma once

#include <cstdint>
#include <optional>

namespace gradwire {

/// Sets the number; the first one stays.
void number_process(std::uint32_t number) noexcept;
/// The number; none: ranks never change, and the rank serves as well.
[[nodiscard]] std::optional<std::uint32_t> process_number() noexcept;

}  // namespace gradwire
