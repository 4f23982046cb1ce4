// Connects a transport over a new world, unless that world is over before the transport is made.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "gradwire/processes.hpp"
#include "membership/world.hpp"

namespace gradwire::session {

/// Calls Processes::connect() on a thread of its own, which is left behind if it waits for a process that has ended.
/// Returns null if the world is over, which the callback that `watch` gets reports. Error(timeout) after twice the
/// `timeout`.
[[nodiscard]] std::shared_ptr<Transport> connect_unless_over(
    const std::shared_ptr<Processes>& processes, const membership::World& world, std::chrono::milliseconds timeout,
    const std::function<void(std::function<void()> over)>& watch);

}  // namespace gradwire::session
