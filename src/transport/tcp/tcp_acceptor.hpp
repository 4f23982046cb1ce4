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
  Purpose purpose = Purpose::messages;
};

class Acceptor {
 public:
  /// Who may come, by the rank that it says.
  struct Ranks {
    std::uint32_t first = 0;
    std::uint32_t end = 0;
    std::size_t at_once = 0;          // connections of theirs
    Purpose last = Purpose::control;  // that they may have
  };
  /// `own`: the greeting that this rank answers with; whoever connects must know its nonce.
  Acceptor(std::vector<Listener> listeners, const Greeting& own, Ranks ranks);

  /// The next connection of one of them; nothing when none came in time, or `woken` can be read.
  [[nodiscard]] std::optional<Accepted> take(Clock::time_point deadline, const Socket& woken = {});

 private:
  // Who connected and has not yet said all. One that begins otherwise than any rank is dropped at once. One that does
  // not know the secret is treated as one that says nothing more, so that it learns nothing of the secret.
  struct Visitor {
    Socket socket;
    Clock::time_point until;
    Greeting said = {};
    std::size_t bytes = 0;
    bool refused = false;                   // not listened to any more
    std::optional<Greeting> answered = {};  // what it had said by then, which it says again
  };
  enum class Heard : std::uint8_t { more, all, nothing_of_ours };

  /// Whether `woken` can be read.
  [[nodiscard]] bool wait(Clock::time_point deadline, const Socket& woken) const;
  void let_in(const Socket& listener);
  void drop_oldest();
  [[nodiscard]] Heard hear(Visitor& visitor) const;
  /// What came so far; answers what is a greeting.
  [[nodiscard]] Heard judge(Visitor& visitor) const;
  [[nodiscard]] bool answer(Visitor& visitor) const;

  std::vector<Listener> listeners_;
  Greeting own_;
  Ranks ranks_;
  std::deque<Visitor> visitors_;  // those that came first in front
};

}  // namespace gradwire::transport::tcp
