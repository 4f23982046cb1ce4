// TLS on one socket: what is sent and received over it when the job has a key. Calls look and fail like those of the
// system, so that callers need not know.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "security/secure_channel.hpp"

namespace gradwire::transport::tcp {

/// By what the connecting side names the key of a connection. Anybody on the network can read it.
struct ConnectionIdentity {
  static constexpr std::uint64_t kMagic = 0x31736c7465726967;  // "giretls1"
  std::uint64_t magic = kMagic;
  std::uint32_t from = 0;     // rank or token of the connecting side
  std::uint32_t to = 0;       // rank of the accepting side
  std::uint32_t purpose = 0;  // a Purpose
  std::uint32_t unused = 0;
};
static_assert(sizeof(ConnectionIdentity) == 24, "no padding: it travels as bytes");

/// Any thread, also two at once. A forked child has the keys and counters of its parent, under which nothing else may
/// be sent: there send(), receive() and shake_hands() fail with EPERM.
class SecureLink {
 public:
  /// `peer`: the accepting side's channel writes here who connects.
  SecureLink(security::SecureChannel channel, std::shared_ptr<std::optional<ConnectionIdentity>> peer)
      : channel_(std::move(channel)), peer_(std::move(peer)) {}

  /// As sendmsg() without waiting. Bytes count as sent once the system has taken them encrypted; until then EAGAIN, and
  /// the next call must begin with the same bytes. EPROTO where TLS has failed, ENOMEM without memory.
  [[nodiscard]] ssize_t send(int fd, std::span<const iovec> parts) noexcept;
  /// As recvmsg() without waiting; 0 where the other side has closed the connection, whether it said so or not.
  [[nodiscard]] ssize_t receive(int fd, std::span<const iovec> parts) noexcept;
  /// Makes the handshake as far as it goes. 1: it is over; otherwise -1 and errno: EAGAIN until more has come.
  [[nodiscard]] int shake_hands(int fd) noexcept;

  [[nodiscard]] bool in_handshake() const noexcept;
  /// Whether receive() may return something, or fail, though the socket cannot be read.
  [[nodiscard]] bool unread() const noexcept;
  /// Whether the next send() must begin with the same bytes as the last.
  [[nodiscard]] bool holds_sent() const noexcept;
  /// Why TLS has failed.
  [[nodiscard]] std::string failure() const;
  /// Accepting side: as whom the other side has proven itself, once the handshake is over.
  [[nodiscard]] std::optional<ConnectionIdentity> peer() const noexcept;

 private:
  using State = security::SecureChannel::State;

  [[nodiscard]] bool flush(int fd) REQUIRES(mutex_);
  [[nodiscard]] int advance(int fd) REQUIRES(mutex_);
  [[nodiscard]] int take_in(int fd) REQUIRES(mutex_);

  const Home home_;
  mutable Mutex mutex_;
  security::SecureChannel channel_ GUARDED_BY(mutex_);
  std::shared_ptr<std::optional<ConnectionIdentity>> peer_ GUARDED_BY(mutex_);
  std::vector<std::byte> unsent_ GUARDED_BY(mutex_);  // encrypted bytes that the system has not taken
  std::size_t held_ GUARDED_BY(mutex_) = 0;           // clear bytes that these stand for
  bool ended_ GUARDED_BY(mutex_) = false;             // the other side has closed the connection
};

}  // namespace gradwire::transport::tcp
