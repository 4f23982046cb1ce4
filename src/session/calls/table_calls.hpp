// What Session::pull() does over one engine, for a session whose world never changes and for one whose world may.
#pragma once

#include <cstdint>
#include <span>

#include "session/engine/engine.hpp"

namespace gradwire::session {

/// Throws for bad arguments, which does not end the session.
void check_pull(Engine& engine, std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
/// Must follow check_pull().
void pull(Engine& engine, std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);

}  // namespace gradwire::session
