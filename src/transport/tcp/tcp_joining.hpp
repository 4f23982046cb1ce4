// How a process gets into a job that runs: its side of tcp_introduction.hpp.
#pragma once

#include <vector>

#include "transport/tcp/tcp_introduction.hpp"
#include "transport/tcp/tcp_processes.hpp"

namespace gradwire::transport::tcp {

/// What a process begins with.
struct Seat {
  struct Other {
    Acquaintance who;
    Socket prompt;  // not valid: it cannot be reached any more
    Socket bulk;
  };
  Processes::Id self = 0;
  Processes::Id start = 0;  // processes at the beginning
  std::string name;
  std::vector<Other> others;
  Listening listening = {};  // for those that join; none: nobody can
};

/// Waits for its turns. What join_tcp_processes() throws.
[[nodiscard]] Seat find_seat(const JoinOptions& options);

}  // namespace gradwire::transport::tcp
