// Which process of a job this one is, where ranks change: a job that goes on when ranks end gives each process a
// number, never twice. Files and ports that belong to a process go by it, since ranks move up when others end.
#pragma once

#include <cstdint>
#include <optional>

namespace gradwire {

/// The first number stays.
void number_process(std::uint32_t number) noexcept;
/// None: ranks never change, and the rank says as much.
[[nodiscard]] std::optional<std::uint32_t> process_number() noexcept;

}  // namespace gradwire
