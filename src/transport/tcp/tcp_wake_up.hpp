// What wakes a thread that waits for sockets, from any other thread.
#pragma once

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

class WakeUp {
 public:
  /// Error(transport) where the system gives no descriptor.
  WakeUp();

  /// readable() can be read from here on. Any thread.
  void set() const noexcept;
  /// Until it is set again.
  void clear() const noexcept;
  [[nodiscard]] const Socket& readable() const noexcept { return socket_; }

 private:
  Socket socket_;
};

}  // namespace gradwire::transport::tcp
