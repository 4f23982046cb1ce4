// The emulated link over another clock than the machine's, for tests of its arithmetic.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "gradwire/emulation.hpp"

namespace gradwire::transport {

/// gradwire::make_throttled with the time of `clock`. progress() with a wait only makes sense where that clock runs by
/// itself.
[[nodiscard]] std::shared_ptr<Transport> make_throttled(std::shared_ptr<Transport> inner, LinkSchedule link,
                                                        std::optional<std::chrono::steady_clock::time_point> start,
                                                        std::function<std::chrono::steady_clock::time_point()> clock);

}  // namespace gradwire::transport
