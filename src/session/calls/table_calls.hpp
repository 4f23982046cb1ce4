// Session::pull() over one engine, which sessions with a fixed world and elastic sessions share.
#pragma once

#include <cstdint>
#include <span>

#include "session/engine/engine.hpp"

namespace gradwire::session {

/// Throws for bad arguments; the session goes on after such an error.
void check_pull(Engine& engine, std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
/// Pulls rows; the caller must have called check_pull() before.
void pull(Engine& engine, std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);

}  // namespace gradwire::session
