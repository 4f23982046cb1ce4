// Ranks as processes that reach each other by TCP alone, without a launcher's library: two connections between each two
// ranks, one for messages, one for what must not wait behind them. Addresses go through any store of keys.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// Where ranks leave texts for each other. Errors of its own come out of make_tcp() as they are.
struct Rendezvous {
  std::function<void(const std::string& key, const std::string& value)> put;
  /// Waits for the key, no longer than `limit`.
  std::function<std::string(const std::string& key, std::chrono::milliseconds limit)> get;
};

struct TcpOptions {
  int rank = 0;
  int world_size = 1;
  std::string interface = {};                                  // the only one to use, such as "eth0"; empty: all
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // of what making the transport waits for
  std::function<void()> go_on = {};  // called often while it waits for others; what it throws ends that
};

/// Collective: returns when this rank is connected to all others. Uses the keys "tcp/<rank>" of the rendezvous, which
/// must be new. Error(timeout) that names the rank that did not come.
[[nodiscard]] std::shared_ptr<Transport> make_tcp(const Rendezvous& rendezvous, const TcpOptions& options);

}  // namespace gradwire::transport
