// How a process gets into a job that runs: its side of tcp_introduction.hpp.
#pragma once

#include "transport/tcp/tcp_processes.hpp"
#include "transport/tcp/tcp_seat.hpp"

namespace gradwire::transport::tcp {

/// Waits for its turns. What join_tcp_processes() throws.
[[nodiscard]] Seat find_seat(const JoinOptions& options);

}  // namespace gradwire::transport::tcp
