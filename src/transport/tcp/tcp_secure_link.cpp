#include "transport/tcp/tcp_secure_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kOneCall = 65536;  // bytes of one call: four records

int failed_with(int code) noexcept {
  errno = code;
  return -1;
}

}  // namespace

// Returns whether the system has taken everything; where it has not, errno says why.
bool SecureLink::flush(int fd) {
  constexpr std::size_t kRoom = kOneCall + 1024;  // with the headers and tags of records
  const auto piece = std::make_unique_for_overwrite<std::byte[]>(kRoom);
  for (;;) {
    std::size_t sent = 0;
    while (sent < unsent_.size()) {
      const ssize_t count = ::send(fd, unsent_.data() + sent, unsent_.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0) {
        const int code = errno;
        unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
        errno = code;
        return false;
      }
      sent += static_cast<std::size_t>(count);
    }
    const std::size_t more = channel_.take({piece.get(), kRoom});
    std::vector<std::byte>(piece.get(), piece.get() + more).swap(unsent_);
    if (more == 0) {
      return true;
    }
  }
}

// Gives the channel what has arrived. 1: something had; 0: the other side has closed the connection; -1: errno.
int SecureLink::take_in(int fd) {
  const auto piece = std::make_unique_for_overwrite<std::byte[]>(kOneCall);
  for (;;) {
    const ssize_t count = ::recv(fd, piece.get(), kOneCall, MSG_DONTWAIT);
    if (count > 0) {
      channel_.feed({piece.get(), static_cast<std::size_t>(count)});
      return 1;
    }
    if (count == 0) {
      ended_ = true;
      return 0;
    }
    if (errno != EINTR) {
      return -1;
    }
  }
}

int SecureLink::advance(int fd) {
  for (;;) {
    const State state = channel_.step();
    const bool flushed = flush(fd);  // the last words of a handshake that has failed, too
    if (state != State::handshake) {
      return state == State::open ? 1 : failed_with(state == State::closed ? ECONNRESET : EPROTO);
    }
    if (!flushed) {
      return -1;
    }
    if (const int taken = take_in(fd); taken <= 0) {
      return taken == 0 ? failed_with(ECONNRESET) : -1;
    }
  }
}

int SecureLink::shake_hands(int fd) noexcept {
  if (home_.is_elsewhere()) {  // before the lock, which a thread of the parent may have held
    return failed_with(EPERM);
  }
  try {
    const MutexLock lock(mutex_);
    return advance(fd);
  } catch (...) {
    return failed_with(ENOMEM);
  }
}

ssize_t SecureLink::send(int fd, std::span<const iovec> parts) noexcept {
  if (home_.is_elsewhere()) {  // before the lock, which a thread of the parent may have held
    return failed_with(EPERM);
  }
  try {
    const MutexLock lock(mutex_);
    if (channel_.state() != State::open && advance(fd) != 1) {
      return -1;
    }
    if (held_ == 0) {
      const auto piece = std::make_unique_for_overwrite<std::byte[]>(kOneCall);
      std::size_t bytes = 0;
      for (const iovec& part : parts) {
        const std::size_t of_part = std::min(part.iov_len, kOneCall - bytes);
        if (of_part > 0) {
          std::memcpy(piece.get() + bytes, part.iov_base, of_part);
        }
        bytes += of_part;
      }
      if (bytes == 0) {
        return 0;
      }
      if (!channel_.write({piece.get(), bytes})) {
        return failed_with(EPROTO);
      }
      held_ = bytes;
    }
    return flush(fd) ? static_cast<ssize_t>(std::exchange(held_, 0)) : -1;
  } catch (...) {
    return failed_with(ENOMEM);
  }
}

ssize_t SecureLink::receive(int fd, std::span<const iovec> parts) noexcept {
  if (home_.is_elsewhere()) {  // before the lock, which a thread of the parent may have held
    return failed_with(EPERM);
  }
  try {
    const MutexLock lock(mutex_);
    for (;;) {
      if (channel_.state() == State::handshake && advance(fd) != 1) {
        return ended_ ? 0 : -1;
      }
      std::size_t bytes = 0;
      for (const iovec& part : parts) {
        const std::size_t read = channel_.read({static_cast<std::byte*>(part.iov_base), part.iov_len});
        bytes += read;
        if (read < part.iov_len) {
          break;
        }
      }
      if (bytes > 0) {
        return static_cast<ssize_t>(bytes);
      }
      if (channel_.state() == State::failed) {
        static_cast<void>(flush(fd));
        return failed_with(EPROTO);
      }
      if (channel_.state() == State::closed || ended_) {
        ended_ = true;
        return 0;
      }
      if (const int taken = take_in(fd); taken <= 0) {
        return taken;
      }
    }
  } catch (...) {
    return failed_with(ENOMEM);
  }
}

bool SecureLink::in_handshake() const noexcept {
  const MutexLock lock(mutex_);
  return channel_.state() == State::handshake;
}

bool SecureLink::unread() const noexcept {
  const MutexLock lock(mutex_);
  return channel_.unread();
}

bool SecureLink::holds_sent() const noexcept {
  const MutexLock lock(mutex_);
  return held_ > 0;
}

std::string SecureLink::failure() const {
  const MutexLock lock(mutex_);
  return channel_.failure();
}

std::optional<ConnectionIdentity> SecureLink::peer() const noexcept {
  const MutexLock lock(mutex_);
  return channel_.state() == State::open && peer_ != nullptr ? *peer_ : std::nullopt;
}

}  // namespace gradwire::transport::tcp
