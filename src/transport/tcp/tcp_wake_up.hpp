// Wakes a thread that waits for sockets, from any other thread.
#pragma once

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

class WakeUp {
 public:
  /// Error(transport) where the system gives no descriptor.
  WakeUp();

  /// Makes readable() readable. Any thread may call this.
  void set() const noexcept;
  /// Makes readable() unreadable until it is set again.
  void clear() const noexcept;
  [[nodiscard]] const Socket& readable() const noexcept { return socket_; }

 private:
  Socket socket_;
};

}  // namespace gradwire::transport::tcp
