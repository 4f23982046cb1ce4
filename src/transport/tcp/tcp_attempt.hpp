// One connection that is being made without blocking, so that several can be made at once. The connecting side sends a
// letter of fixed size first, and the other side sends an answer of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

class Attempt {
 public:
  enum class Step : std::uint8_t { more, answered, failed };

  /// `socket` is connecting.
  explicit Attempt(Socket socket) noexcept : socket_(std::move(socket)) {}

  /// Makes as much progress as possible without blocking. The caller gives the same `letter` and `answer` each time;
  /// `answer` is complete once the step says so. `why` says why it failed.
  [[nodiscard]] Step move(std::span<const std::byte> letter, std::span<std::byte> answer, std::string& why);
  /// If not connected, the next step is possible once the socket can be written; later ones once it can be read.
  [[nodiscard]] bool connected() const noexcept { return connected_; }
  /// Whether it failed because the other side closed a connection that was made.
  [[nodiscard]] bool was_closed() const noexcept { return was_closed_; }
  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
  [[nodiscard]] Socket take() noexcept { return std::move(socket_); }

 private:
  Socket socket_;
  bool connected_ = false;
  bool said_ = false;  // the letter
  bool was_closed_ = false;
  std::size_t heard_ = 0;  // bytes of the answer that have arrived
};

}  // namespace gradwire::transport::tcp
