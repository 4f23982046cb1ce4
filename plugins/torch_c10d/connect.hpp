// Connects the ranks of a process group that know each other only by the group's key-value store.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

struct ConnectOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // for each wait
  std::function<void()> go_on = {};  // called at least twice a second while it waits; an exception ends the wait
};

/// Collective. Connects by TCP, over GRADWIRE_SOCKET_IFNAME if that is set, or by MPI if GRADWIRE_TORCH_TRANSPORT is
/// "mpi". Keys of the store must be new. Throws Error(timeout) that names the rank that did not come.
[[nodiscard]] std::shared_ptr<Transport> connect_ranks(const transport::Rendezvous& store,
                                                       const ConnectOptions& options);

/// Waits for a key, and calls `go_on` (may be empty) at least twice a second meanwhile.
[[nodiscard]] std::string get_while(const transport::Rendezvous& store, const std::string& key,
                                    std::chrono::milliseconds limit, const std::function<void()>& go_on);

}  // namespace gradwire::torch_c10d
