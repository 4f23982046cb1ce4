// Makes connections anew to processes whose cards are known: several at once, without blocking.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "transport/tcp/tcp_attempt.hpp"
#include "transport/tcp/tcp_card.hpp"
#include "transport/tcp/tcp_greeting.hpp"
#include "transport/tcp/tcp_keys.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

/// One thread at a time.
class Dialer {
 public:
  struct Order {
    std::uint32_t who = 0;
    Purpose purpose = Purpose::messages;
    Card card = {};  // that process's card
    Clock::time_point until = {};
  };
  struct Made {
    std::uint32_t who = 0;
    Purpose purpose = Purpose::messages;
    Socket socket = {};  // the connection on which it has answered; not valid: the attempt failed
  };

  /// `self` is the rank that its greetings name; `keys` encrypt its connections, unless null.
  Dialer(std::uint32_t self, std::shared_ptr<const ConnectionKeys> keys);

  /// Begins to dial all addresses of a process at once; the first one at which the process answers is used. If it
  /// throws, nothing has begun.
  void begin(Order order);
  /// Makes progress without blocking; returns the attempts that have ended.
  [[nodiscard]] std::vector<Made> move();
  /// A descriptor that can be read when move() may make progress. Others may add descriptors to it that shall wake the
  /// same waiting thread.
  [[nodiscard]] const Socket& readable() const noexcept { return poll_; }
  void watch(const Socket& other) const;
  /// The latest moment at which move() must be called.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;

 private:
  struct Try {
    Attempt attempt;
    Greeting answer = {};
  };
  struct Dial {
    Order order;
    Greeting mine;
    std::vector<Try> tries;
  };

  void await(const Socket& socket, std::uint32_t events, int how) const;
  [[nodiscard]] Attempt::Step move(Dial& dial, Try& one) const;

  std::uint32_t self_;
  std::shared_ptr<const ConnectionKeys> keys_;
  Socket poll_;
  std::list<Dial> dials_;
};

}  // namespace gradwire::transport::tcp
