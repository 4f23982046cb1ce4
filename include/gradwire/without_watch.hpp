// Leaves out of a program what writes metrics, traces and histories (docs/monitoring.md): include this in one of its
// files. GRADWIRE_METRICS, GRADWIRE_TRACE and GRADWIRE_REPORT then write nothing, and one line of a process says so.
#pragma once

namespace gradwire::observe {

struct WatchedProcess;

/// Stands for the function of this name that begins to watch. The linker takes this one, and so the library's files
/// behind the other one are not part of the program.
// NOLINTNEXTLINE(misc-definitions-in-headers): a second file that includes this is to be an error of the linker
bool watch(const WatchedProcess& /*process*/) noexcept { return false; }

}  // namespace gradwire::observe
