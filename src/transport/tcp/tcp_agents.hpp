// Connections on which agents of other processes report the end of their process.
#pragma once

#include <list>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_channel.hpp"
#include "transport/tcp/tcp_packet.hpp"

namespace gradwire::transport::tcp {

class Agents final : public Watched {
 public:
  using Id = Processes::Id;

  /// Adds a connection whose maker claims to be the agent of `who`; it must know this secret. Any thread may call this.
  void add(Id who, Socket socket, std::uint64_t secret);
  /// Any thread may call this.
  void forget(Id who);

  void list(std::vector<pollfd>& polled) override;
  void look(std::span<const pollfd> polled) override;
  /// The processes that have ended since the last call, as their agents report.
  [[nodiscard]] std::vector<EndOfProcess> take_ends() { return std::exchange(ends_, {}); }

 private:
  struct Connection {
    Id who = 0;
    Socket socket;
    std::uint64_t secret = 0;
    PacketReader reader;
    bool proven = false;
  };

  /// Reads from a connection; false where it is no longer needed.
  [[nodiscard]] bool hear(Connection& connection);

  Mutex mutex_;
  std::list<Connection> connections_ GUARDED_BY(mutex_);
  std::vector<EndOfProcess> ends_;  // only the thread that hears uses it
};

}  // namespace gradwire::transport::tcp
