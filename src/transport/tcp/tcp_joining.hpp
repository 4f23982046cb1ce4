// How a process joins a running job: the joiner's side of tcp_introduction.hpp.
#pragma once

#include "transport/tcp/tcp_processes.hpp"
#include "transport/tcp/tcp_seat.hpp"

namespace gradwire::transport::tcp {

/// Waits for its turns. Throws the errors of join_tcp_processes().
[[nodiscard]] Seat find_seat(const JoinOptions& options);

}  // namespace gradwire::transport::tcp
