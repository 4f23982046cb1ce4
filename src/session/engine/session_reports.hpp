// A session's reports about itself: statistics, a snapshot and the text of explain().
#pragma once

#include <string>

#include "session/engine/core.hpp"

namespace gradwire::session {

[[nodiscard]] SessionStatistics statistics_of(const Core& core);
/// A snapshot for metrics and histories. The caller holds no lock.
[[nodiscard]] observe::Snapshot snapshot_of(const Core& core);
/// The text of Session::explain(). `beside` is inserted before the lines of the parts that the plan asks for.
[[nodiscard]] std::string explain(Core& core, const std::string& beside = {});

}  // namespace gradwire::session
