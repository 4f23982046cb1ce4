// Connections that are made anew to processes whose cards are known: several at once, without waiting.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "transport/tcp/tcp_attempt.hpp"
#include "transport/tcp/tcp_card.hpp"
#include "transport/tcp/tcp_greeting.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

/// Not for several threads at once.
class Dialer {
 public:
  struct Order {
    std::uint32_t who = 0;
    Purpose purpose = Purpose::messages;
    Card card = {};  // of that process
    Clock::time_point until = {};
  };
  struct Made {
    std::uint32_t who = 0;
    Purpose purpose = Purpose::messages;
    Socket socket = {};  // on which it has answered; not valid: it was in vain
  };

  /// `self` is what it says for its rank.
  explicit Dialer(std::uint32_t self);

  /// All addresses at once: the first one at which the process answers counts.
  void begin(Order order);
  /// What has become of those that were begun.
  [[nodiscard]] std::vector<Made> move();
  /// Can be read where move() may do something. It can be told of others that are to wake who waits for it.
  [[nodiscard]] const Socket& readable() const noexcept { return poll_; }
  void watch(const Socket& other) const;
  /// When move() is to be called at the latest.
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
  Socket poll_;
  std::list<Dial> dials_;
};

}  // namespace gradwire::transport::tcp
