// Takes the connections of higher ranks. Whoever else connects, and says nothing or something else, keeps nobody
// waiting: all are listened to at once, and each has its own time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "transport/tcp/tcp_greeting.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

struct Accepted {
  Socket socket;
  int rank = 0;
  bool control = false;
};

class Acceptor {
 public:
  /// `own`: the greeting that this rank answers with; whoever connects must know its nonce.
  Acceptor(std::vector<Listener> listeners, const Greeting& own, int world_size);

  /// The next connection of a higher rank; nothing when none came in time.
  [[nodiscard]] std::optional<Accepted> take(Clock::time_point deadline);

 private:
  // Who connected and has not yet said all. It is dropped at the first byte that no rank would send.
  struct Visitor {
    Socket socket;
    Clock::time_point until;
    Greeting said = {};
    std::size_t bytes = 0;
    std::optional<Greeting> answered = {};  // what it had said by then, which it says again
  };
  enum class Heard : std::uint8_t { more, all, nothing_of_ours };

  void wait(Clock::time_point deadline) const;
  void let_in(const Socket& listener);
  void drop_oldest();
  [[nodiscard]] Heard hear(Visitor& visitor) const;
  [[nodiscard]] bool may_go_on(const Visitor& visitor) const;
  [[nodiscard]] bool answer(Visitor& visitor) const;

  std::vector<Listener> listeners_;
  Greeting own_;
  int world_size_;
  std::deque<Visitor> visitors_;  // those that came first in front
};

}  // namespace gradwire::transport::tcp
