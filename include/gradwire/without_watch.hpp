// Include this in one file of a program to leave out the code that writes metrics, traces and histories
// (docs/how-to/monitoring.md). GRADWIRE_METRICS, GRADWIRE_TRACE and GRADWIRE_REPORT then write nothing, which each
// process logs in one line.
#pragma once

namespace gradwire::observe {

struct WatchedProcess;

/// Replaces the library's function of this name, which starts the watching. The linker takes this one, so the files
/// that the other one needs do not become part of the program.
// NOLINTNEXTLINE(misc-definitions-in-headers): a second file that includes this is to be an error of the linker
bool watch(const WatchedProcess& /*process*/) noexcept { return false; }

}  // namespace gradwire::observe
