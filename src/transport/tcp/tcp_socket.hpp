// A socket, and the few calls that the TCP transport makes on it. Failures are Error(transport) with the system's own
// text. All bytes of connections between processes go through send_some() and receive_some(), which encrypt them where
// the job has a key.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::transport::tcp {

using Clock = std::chrono::steady_clock;

class SecureLink;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), secure_(std::move(other.secure_)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(secure_, other.secure_);
    return *this;
  }
  ~Socket();
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  /// From here on everything that is sent and received over it is encrypted.
  void encrypt(std::unique_ptr<SecureLink> secure) noexcept;
  /// Null: nothing is encrypted.
  [[nodiscard]] SecureLink* secure() const noexcept { return secure_.get(); }

 private:
  struct Frees {
    void operator()(SecureLink* secure) const noexcept;
  };
  int fd_ = -1;
  std::unique_ptr<SecureLink, Frees> secure_;
};

/// The system's text of an error, such as "Connection refused".
[[nodiscard]] std::string system_text(int code);

struct InterfaceAddress {
  std::string interface;
  std::string address;
};
/// Most addresses of one kind. Each costs a socket, and a connecting process tries one after the other.
inline constexpr std::size_t kMostAddresses = 32;
/// The first address of each interface, then the second of each, and so on; at most kMostAddresses.
[[nodiscard]] std::vector<std::string> spread_over_interfaces(const std::vector<InterfaceAddress>& all);

/// The addresses of this host that others may reach, IPv4 before IPv6, those of the loopback last; each kind in the
/// order of spread_over_interfaces(). If `interface` is named, only its addresses; Error(invalid_argument), which lists
/// the interfaces, where there is no such one.
[[nodiscard]] std::vector<std::string> own_addresses(const std::string& interface);
/// A text that is the same on ranks that reach each other by the loopback, and different on all others.
[[nodiscard]] std::string host_identity();

/// The own addresses to listen on: those of the loopback on one host, where no interface is named; otherwise the
/// others.
[[nodiscard]] std::vector<std::string> addresses_for(const std::string& interface, bool one_host);

struct Listener {
  Socket socket;
  std::uint16_t port = 0;
};
/// Listens on this address only, at a free port. If it cannot be used, the result is not valid, and `why` says why.
[[nodiscard]] Listener listen_at(const std::string& address, std::string& why);
/// Connects; if that fails, the result is not valid, and `why` says why.
[[nodiscard]] Socket connect_until(const std::string& address, std::uint16_t port, Clock::time_point deadline,
                                   std::string& why);

/// As sendmsg() and recvmsg(), without waiting and without signals. Where send_some() says EAGAIN, the next call must
/// begin with the same bytes. EPROTO where the other side has another key, or bytes were changed on their way.
[[nodiscard]] ssize_t send_some(const Socket& socket, std::span<const iovec> parts) noexcept;
[[nodiscard]] ssize_t receive_some(const Socket& socket, std::span<const iovec> parts) noexcept;
[[nodiscard]] ssize_t receive_some(const Socket& socket, std::span<std::byte> data) noexcept;
/// Whether receive_some() may return something though the system does not say that the socket can be read. To be asked
/// before each wait for a socket from which not everything was read.
[[nodiscard]] bool has_unread(const Socket& socket) noexcept;
/// Whether send_some() has taken bytes that do not count as sent yet, so that the next call must begin with them.
[[nodiscard]] bool holds_sent(const Socket& socket) noexcept;
/// Makes the handshake of an encrypted connection as far as it goes, without waiting. 1: it is over, or there is none;
/// otherwise -1 and errno, which is EAGAIN until more can be read.
[[nodiscard]] int shake_hands(const Socket& socket) noexcept;
/// The same until the deadline.
[[nodiscard]] bool shakes_hands(const Socket& socket, Clock::time_point deadline) noexcept;
/// Whether TLS has failed on an encrypted connection: bytes were changed on their way, or the other side has another
/// key.
[[nodiscard]] bool tls_failed(const Socket& socket) noexcept;
/// The text of an error of these calls.
[[nodiscard]] std::string text_of_error(const Socket& socket, int code);

/// Writes or reads all bytes, or returns false, also when `woken` can be read. Nothing else may use the connection
/// meanwhile.
[[nodiscard]] bool write_until(const Socket& socket, std::span<const std::byte> data, Clock::time_point deadline);
[[nodiscard]] bool read_until(const Socket& socket, std::span<std::byte> data, Clock::time_point deadline,
                              const Socket& woken = {});

enum class Carries : std::uint8_t { messages, control, lane };
/// Sets the options of a connection. Small messages are sent without delay. Only the control connection ends within
/// half a minute when the peer's host is gone: on the connection for messages, a peer that takes nothing may just be
/// late, and the system would end the connection for that.
/// A `lane` is made anew when it breaks, so it may break early: within 6 s when the peer's host is gone or takes
/// nothing. Its keepalive, every 3 s while nothing is sent, keeps a NAT from forgetting it. Lost packets are sent again
/// every 200 ms or so.
void set_up(const Socket& socket, Carries what);

/// Whether the other end is closed. Unread bytes stay.
[[nodiscard]] bool is_at_end(const Socket& socket) noexcept;

}  // namespace gradwire::transport::tcp
