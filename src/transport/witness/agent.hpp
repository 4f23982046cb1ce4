// The agent: a tiny process beside this one, which outlives it for a moment and tells processes of other hosts that it
// has ended. A process that is alone on its host, or ends together with all others there, has no other witness.
#pragma once

#include <cstdint>
#include <memory>

#include "base/mutex.hpp"
#include "transport/tcp/tcp_socket.hpp"
#include "transport/witness/witness_page.hpp"

namespace gradwire::transport::witness {

class Agent {
 public:
  /// Forks the agent; returns nothing where that is not possible. Call it early: the agent keeps the memory that this
  /// process has at that moment until both end.
  [[nodiscard]] static std::shared_ptr<Agent> start();
  Agent(tcp::Socket socket) : socket_(std::move(socket)) {}

  /// Makes the agent report what `page` says, for process `self`. Any thread, as all functions here. False: the agent
  /// is gone.
  bool begin(std::uint32_t self, const WitnessPage& page);
  /// Gives the agent a connection to `who`, on which it reports the end. Only the agent uses it from here on.
  bool give(std::uint32_t who, tcp::Socket connection);
  /// Says that `who` has ended and need not be told anything.
  bool forget(std::uint32_t who);
  /// Returns in `who` a process to which the agent's connection has broken since; false: none. One thread at a time.
  bool next_broken(std::uint32_t& who);
  /// A descriptor that can be read when next_broken() has a result.
  [[nodiscard]] const tcp::Socket& readable() const noexcept { return socket_; }

 private:
  bool say(std::uint32_t kind, std::uint32_t who, int descriptor);

  Mutex mutex_;  // held while an order is sent
  tcp::Socket socket_;
};

}  // namespace gradwire::transport::witness
