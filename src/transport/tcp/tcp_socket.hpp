// One socket, and the few calls that the TCP transport makes of it. Failures are Error(transport) with the system's
// own words.
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

/// "Connection refused"
[[nodiscard]] std::string system_text(int code);

struct InterfaceAddress {
  std::string interface;
  std::string address;
};
/// Of one kind. Each costs a socket, and whoever connects tries one after the other.
inline constexpr std::size_t kMostAddresses = 32;
/// The first address of each interface, then the second of each, and so on; no more than kMostAddresses.
[[nodiscard]] std::vector<std::string> spread_over_interfaces(const std::vector<InterfaceAddress>& all);

/// The addresses of this host that others may reach, IPv4 before IPv6, those of the loopback last; of each of these
/// kinds as spread_over_interfaces() says. Of one interface where it is named: Error(invalid_argument) that lists those
/// that there are.
[[nodiscard]] std::vector<std::string> own_addresses(const std::string& interface);
/// The same on ranks that reach each other by the loopback, different on all others.
[[nodiscard]] std::string host_identity();

/// Those of them to listen on: on one host the loopback's, where no interface is named, between hosts the others.
[[nodiscard]] std::vector<std::string> addresses_for(const std::string& interface, bool one_host);

struct Listener {
  Socket socket;
  std::uint16_t port = 0;
};
/// On this address alone, at a port that is free. Not valid where it cannot be used: `why` says it.
[[nodiscard]] Listener listen_at(const std::string& address, std::string& why);
/// Not valid when it did not work: `why` says it.
[[nodiscard]] Socket connect_until(const std::string& address, std::uint16_t port, Clock::time_point deadline,
                                   std::string& why);

/// All or false. For connections that nothing else uses meanwhile. False also when `woken` can be read.
[[nodiscard]] bool write_until(const Socket& socket, std::span<const std::byte> data, Clock::time_point deadline);
[[nodiscard]] bool read_until(const Socket& socket, std::span<std::byte> data, Clock::time_point deadline,
                              const Socket& woken = {});

enum class Carries : std::uint8_t { messages, control, lane };
/// No delay for small messages. A host that is gone shows within half a minute on the control connection alone: a peer
/// that takes no messages meanwhile may just be late, but the system would end that connection for it.
/// A `lane` is made anew where it breaks, so that it may break early: within 6 s where its other side's host is gone,
/// or takes nothing. Its keepalive, every 3 s where nothing else is said, keeps a NAT from forgetting it. What was lost
/// is sent again every 200 ms or so.
void set_up(const Socket& socket, Carries what);

/// Whether the other end is closed. What was not read stays.
[[nodiscard]] bool is_at_end(const Socket& socket) noexcept;

}  // namespace gradwire::transport::tcp
