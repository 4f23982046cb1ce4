// Ranks as processes that reach each other by TCP alone, without a launcher's library. There are two connections
// between each two ranks, one for messages, one for notes that must not wait behind them. Ranks exchange addresses
// through any key-value store.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

namespace tcp {
class ConnectionKeys;
}

/// A key-value store for texts of ranks to each other. make_tcp() passes its errors on unchanged.
struct Rendezvous {
  std::function<void(const std::string& key, const std::string& value)> put;
  /// Waits for the key, no longer than `limit`.
  std::function<std::string(const std::string& key, std::chrono::milliseconds limit)> get;
};

struct TcpOptions {
  int rank = 0;
  int world_size = 1;
  std::string interface = {};                                  // the only interface to use, such as "eth0"; empty: all
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // for each wait while the transport is made
  std::function<void()> go_on = {};  // called often while it waits for others; an exception ends the wait
  std::shared_ptr<const tcp::ConnectionKeys> keys = {};  // encrypt all connections; null: those of GRADWIRE_KEY
};

/// Collective: returns when this rank is connected to all others. Uses the keys "tcp/<rank>" of the rendezvous, which
/// must be new. Error(timeout) that names the rank that did not come.
/// Where GRADWIRE_KEY is set, all connections are encrypted; Error(mismatch) where a rank has another key, or none.
[[nodiscard]] std::shared_ptr<Transport> make_tcp(const Rendezvous& rendezvous, const TcpOptions& options);

}  // namespace gradwire::transport
