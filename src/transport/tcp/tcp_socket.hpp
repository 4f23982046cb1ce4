// A socket, and the few calls that the TCP transport makes on it. Failures are Error(transport) with the system's own
// text.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::transport::tcp {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
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
