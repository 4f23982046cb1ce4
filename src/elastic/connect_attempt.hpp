// A transport over a new world, unless that world is over before it is made.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "gradwire/processes.hpp"
#include "membership/world.hpp"

namespace gradwire::session {

/// Processes::connect() on a thread of its own, which is left behind where it waits for a process that has ended. Null:
/// the world is over, which the function says that `watch` is given. Error(timeout) after twice the `timeout`.
[[nodiscard]] std::shared_ptr<Transport> connect_unless_over(
    const std::shared_ptr<Processes>& processes, const membership::World& world, std::chrono::milliseconds timeout,
    const std::function<void(std::function<void()> over)>& watch);

}  // namespace gradwire::session
