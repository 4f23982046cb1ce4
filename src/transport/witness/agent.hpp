// A tiny process beside this one, which outlives it for a moment and tells processes of other hosts of its end: a
// process that is alone on its host, or ends together with all others there, has no other witness.
#pragma once

#include <cstdint>
#include <memory>

#include "base/mutex.hpp"
#include "transport/tcp/tcp_socket.hpp"
#include "transport/witness/witness_page.hpp"

namespace gradwire::transport::witness {

class Agent {
 public:
  /// Forks it off. Nothing where that is not possible. To be called early: what this process has in memory then stays
  /// the agent's, too, until both end.
  [[nodiscard]] static std::shared_ptr<Agent> start();
  Agent(tcp::Socket socket) : socket_(std::move(socket)) {}

  /// From here on it tells what this page says, as of this process. Any thread, as the others. False: it is gone.
  bool begin(std::uint32_t self, const WitnessPage& page);
  /// A connection to that process, by which it tells of the end. It is the agent's alone from here on.
  bool give(std::uint32_t who, tcp::Socket connection);
  /// It has ended, and needs to be told nothing.
  bool forget(std::uint32_t who);
  /// One to which the agent's connection broke since; false: none. By one thread at a time.
  bool next_broken(std::uint32_t& who);
  /// Can be read where next_broken() has something to say.
  [[nodiscard]] const tcp::Socket& readable() const noexcept { return socket_; }

 private:
  bool say(std::uint32_t kind, std::uint32_t who, int descriptor);

  Mutex mutex_;  // held while an order is sent
  tcp::Socket socket_;
};

}  // namespace gradwire::transport::witness
