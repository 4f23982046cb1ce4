// A slow link on one host, for `gradwire run --link`: this process moves into a network namespace of its own, whose
// loopback device is shaped by tbf, and MPI is told to send over TCP. Everything that ranks send to each other then
// passes that device, the calls of gradwire and those of the job's own MPI library alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/preload.hpp"

namespace gradwire::cli {

struct EmulatedLink {
  double bytes_per_second = 0;
  std::chrono::nanoseconds latency{0};  // of each packet, one way
  std::string text;                     // as it was written
};

/// "1Gbit/s", or with a latency "1Gbit/s,5ms". Error(invalid_argument) that shows an example.
[[nodiscard]] EmulatedLink parse_emulated_link(std::string_view text);

/// Refuses commands whose messages would not pass the link: Error(invalid_argument) where mpirun or Slurm names other
/// hosts, for srun, whose ranks are started by a daemon, and where arguments of mpirun set what MPI sends over to
/// something else than enter_emulated_link() does. `launcher` is the index of mpirun.
void check_link_command(const std::vector<std::string>& command, std::optional<std::size_t> launcher,
                        std::optional<Library> library);

/// Moves this process, which must have one thread, and all that it starts from here on into a new network namespace
/// with that link, and sets the variables that make Open MPI and MPICH use TCP. Without root it makes a user namespace,
/// too, in which the user keeps name and rights. Error(unsupported) where the system refuses or a tool is missing; it
/// says what to do, such as this process's own command line behind sudo.
void enter_emulated_link(const EmulatedLink& link);

/// The bytes that have been sent over the loopback device of this process's network namespace, headers included.
[[nodiscard]] std::uint64_t bytes_over_loopback();

}  // namespace gradwire::cli
