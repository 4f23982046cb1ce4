// Connections on which agents of other processes tell of their end.
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

  /// One that somebody made who says that it is of `who`, and must know this secret. Any thread.
  void add(Id who, Socket socket, std::uint64_t secret);
  /// Any thread.
  void forget(Id who);

  void list(std::vector<pollfd>& polled) override;
  void look(std::span<const pollfd> polled) override;
  /// Those that have ended since, by the word of their agents.
  [[nodiscard]] std::vector<EndOfProcess> take_ends() { return std::exchange(ends_, {}); }

 private:
  struct Connection {
    Id who = 0;
    Socket socket;
    std::uint64_t secret = 0;
    PacketReader reader;
    bool proven = false;
  };

  /// False: it is done with.
  [[nodiscard]] bool hear(Connection& connection);

  Mutex mutex_;
  std::list<Connection> connections_ GUARDED_BY(mutex_);
  std::vector<EndOfProcess> ends_;  // of the thread that hears
};

}  // namespace gradwire::transport::tcp
