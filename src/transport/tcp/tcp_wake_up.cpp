#include "transport/tcp/tcp_wake_up.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "gradwire/error.hpp"

namespace gradwire::transport::tcp {

WakeUp::WakeUp() : socket_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!socket_.valid()) {
    throw Error(ErrorCode::transport, "tcp: eventfd: " + system_text(errno));
  }
}

void WakeUp::set() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!write(socket_.fd(), &one, sizeof(one)));
}

void WakeUp::clear() const noexcept {
  std::uint64_t count = 0;
  static_cast<void>(!read(socket_.fd(), &count, sizeof(count)));
}

}  // namespace gradwire::transport::tcp
