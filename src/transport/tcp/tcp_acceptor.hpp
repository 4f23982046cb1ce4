// Accepts the connections of higher ranks. A stranger that connects and sends nothing, or something else, delays
// nobody: the acceptor reads from all visitors at once, and each has a time limit of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "transport/tcp/tcp_greeting.hpp"
#include "transport/tcp/tcp_keys.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

struct Accepted {
  Socket socket;
  int rank = 0;
  Purpose purpose = Purpose::messages;
};

class Acceptor {
 public:
  /// The ranks that may connect; a visitor says its rank.
  struct Ranks {
    std::uint32_t first = 0;
    std::uint32_t end = 0;
    std::size_t at_once = 0;          // number of their connections that may be under way at once
    Purpose last = Purpose::control;  // the last purpose that their connections may have
  };
  /// `own`: the greeting with which this rank answers; a visitor must know its nonce. `keys`: connections are encrypted
  /// by these, and a visitor must know them, too; null: they are not.
  Acceptor(std::vector<Listener> listeners, const Greeting& own, Ranks ranks,
           std::shared_ptr<const ConnectionKeys> keys);

  /// The next connection of such a rank; nothing when none came in time, or `woken` can be read.
  [[nodiscard]] std::optional<Accepted> take(Clock::time_point deadline, const Socket& woken = {});

 private:
  // A connection whose greeting is not complete. A visitor that does not begin like a rank is dropped at once. One that
  // does not know the secret is treated like one that sends nothing more, so that it learns nothing about the secret.
  struct Visitor {
    Socket socket;
    Clock::time_point until;
    Greeting said = {};
    std::size_t bytes = 0;
    bool refused = false;                   // nothing more is read from it
    std::optional<Greeting> answered = {};  // the greeting that was answered, which it must repeat
  };
  enum class Heard : std::uint8_t { more, all, foreign };

  /// Whether `woken` can be read.
  [[nodiscard]] bool wait(Clock::time_point deadline, const Socket& woken) const;
  void let_in(const Socket& listener);
  void drop_oldest();
  [[nodiscard]] Heard hear(Visitor& visitor) const;
  /// Judges what a visitor has sent so far; answers a complete greeting.
  [[nodiscard]] Heard judge(Visitor& visitor) const;
  [[nodiscard]] bool answer(Visitor& visitor) const;

  std::vector<Listener> listeners_;
  Greeting own_;
  Ranks ranks_;
  std::shared_ptr<const ConnectionKeys> keys_;
  std::deque<Visitor> visitors_;  // oldest first
};

}  // namespace gradwire::transport::tcp
