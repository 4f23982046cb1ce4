// The start state of a TcpProcesses object.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_introduction.hpp"
#include "transport/witness/agent.hpp"
#include "transport/witness/witnesses.hpp"

namespace gradwire::transport::tcp {

struct Seat {
  struct Other {
    Acquaintance who;
    Socket prompt;  // not valid: that process has ended, or cannot be reached
    Socket bulk;
  };
  Processes::Id self = 0;
  Processes::Id start = 0;  // processes at the beginning
  Acquaintance own = {};
  std::vector<Other> others = {};
  std::vector<Listener> listeners = {};
  std::shared_ptr<witness::Witnesses> witnesses = {};
  std::shared_ptr<witness::Agent> agent = {};
  std::shared_ptr<const ConnectionKeys> keys = {};  // encrypt all connections; null: they are in clear text
  std::string join_file = {};                       // the last process of the job removes it; empty: none
};

/// `open`: other processes may join.
[[nodiscard]] std::shared_ptr<Processes> make_processes(Seat seat, bool open, std::string interface,
                                                        std::function<void()> on_loss);

}  // namespace gradwire::transport::tcp
