// Metrics of this process, as the environment asks for them.
#pragma once

#include "observe/watching.hpp"

namespace gradwire::metrics {

inline void export_from_environment() noexcept { observe::begin_watching(); }

}  // namespace gradwire::metrics
