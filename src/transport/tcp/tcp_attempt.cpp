#include "transport/tcp/tcp_attempt.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace gradwire::transport::tcp {

Attempt::Step Attempt::move(std::span<const std::byte> letter, std::span<std::byte> answer, std::string& why) {
  if (!connected_) {
    pollfd writable{socket_.fd(), POLLOUT, 0};
    if (poll(&writable, 1, 0) == 0) {
      return Step::more;
    }
    int code = 0;
    socklen_t length = sizeof(code);
    if (getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &code, &length) != 0) {
      code = errno;
    }
    if (code != 0) {
      why = system_text(code);
      return Step::failed;
    }
    connected_ = true;
  }
  if (!said_) {
    // The letter is small and the connection new, so there is always room for it.
    const bool shaken = shake_hands(socket_) == 1;
    said_ = shaken && write_until(socket_, letter, Clock::now());
    if (said_ || (!shaken && errno == EAGAIN)) {
      return Step::more;
    }
    why = text_of_error(socket_, errno);
    return Step::failed;
  }
  const auto rest = answer.subspan(heard_);
  const ssize_t count = receive_some(socket_, rest);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return Step::more;
  }
  if (count <= 0) {
    was_closed_ = true;
    why = "the connection was closed";
    return Step::failed;
  }
  heard_ += static_cast<std::size_t>(count);
  return heard_ < answer.size() ? Step::more : Step::answered;
}

}  // namespace gradwire::transport::tcp
