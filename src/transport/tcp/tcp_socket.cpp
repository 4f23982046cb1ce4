#include "transport/tcp/tcp_socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "gradwire/error.hpp"
#include "transport/tcp/tcp_secure_link.hpp"

namespace gradwire::transport::tcp {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::transport, what + ": " + system_text(errno)); }

int poll_until(int fd, short events, Clock::time_point deadline, int woken = -1) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    std::array<pollfd, 2> entries{{{fd, events, 0}, {woken, POLLIN, 0}}};
    const int count =
        poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
    if (count > 0) {
      return entries[1].revents == 0 ? count : 0;
    }
    if (count == 0 && left.count() <= 0) {
      return 0;
    }
    if (count < 0 && errno != EINTR) {
      return -1;
    }
  }
}

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  }
  return inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr ? "" : text.data();
}

// Link-local addresses are not usable, since they need an interface of the reader's host.
bool usable(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return true;
  }
  return address->sa_family == AF_INET6 &&
         !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string first_line(const char* file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::unique_ptr<addrinfo, void (*)(addrinfo*)> numeric(const std::string& address, std::uint16_t port,
                                                       std::string& why) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0) {
    why = gai_strerror(code);
  }
  return {found, &freeaddrinfo};
}

// Then the next bytes must come from the other side.
bool in_handshake(const Socket& socket) { return socket.secure() != nullptr && socket.secure()->in_handshake(); }

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

void Socket::Frees::operator()(SecureLink* secure) const noexcept { delete secure; }

void Socket::encrypt(std::unique_ptr<SecureLink> secure) noexcept { secure_.reset(secure.release()); }

ssize_t send_some(const Socket& socket, std::span<const iovec> parts) noexcept {
  if (socket.secure() != nullptr) {
    return socket.secure()->send(socket.fd(), parts);
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  message.msg_iovlen = parts.size();
  return sendmsg(socket.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t receive_some(const Socket& socket, std::span<const iovec> parts) noexcept {
  if (socket.secure() != nullptr) {
    return socket.secure()->receive(socket.fd(), parts);
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  message.msg_iovlen = parts.size();
  return recvmsg(socket.fd(), &message, MSG_DONTWAIT);
}

ssize_t receive_some(const Socket& socket, std::span<std::byte> data) noexcept {
  const iovec part{data.data(), data.size()};
  return receive_some(socket, std::span(&part, 1));
}

bool has_unread(const Socket& socket) noexcept { return socket.secure() != nullptr && socket.secure()->unread(); }

bool holds_sent(const Socket& socket) noexcept { return socket.secure() != nullptr && socket.secure()->holds_sent(); }

int shake_hands(const Socket& socket) noexcept {
  return socket.secure() == nullptr ? 1 : socket.secure()->shake_hands(socket.fd());
}

bool tls_failed(const Socket& socket) noexcept { return socket.secure() != nullptr && socket.secure()->failed(); }

std::string text_of_error(const Socket& socket, int code) {
  if (code != EPROTO || socket.secure() == nullptr) {
    return system_text(code);
  }
  return "TLS failed: bytes were changed on their way, or it has another key (" + socket.secure()->failure() + ")";
}

std::string system_text(int code) { return std::system_category().message(code); }

std::vector<std::string> spread_over_interfaces(const std::vector<InterfaceAddress>& all) {
  std::vector<std::pair<std::size_t, const InterfaceAddress*>> numbered;  // numbers within the interface
  numbered.reserve(all.size());
  std::map<std::string, std::size_t> counts;
  for (const InterfaceAddress& each : all) {
    numbered.emplace_back(counts[each.interface]++, &each);
  }
  std::ranges::stable_sort(numbered, {}, &decltype(numbered)::value_type::first);
  numbered.resize(std::min(numbered.size(), kMostAddresses));
  std::vector<std::string> addresses;
  addresses.reserve(numbered.size());
  for (const auto& [number, each] : numbered) {
    addresses.push_back(each->address);
  }
  return addresses;
}

std::vector<std::string> own_addresses(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    fail("the network interfaces of this host cannot be listed");
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, &freeifaddrs);
  std::array<std::vector<InterfaceAddress>, 4> ranked;  // IPv4, IPv6, IPv4 of the loopback, IPv6 of the loopback
  std::set<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || !usable(entry->ifa_addr)) {
      continue;
    }
    names.insert(entry->ifa_name);
    if (!interface.empty() && interface != entry->ifa_name) {
      continue;
    }
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    ranked[(loopback ? 2U : 0U) + (entry->ifa_addr->sa_family == AF_INET6 ? 1U : 0U)].push_back(
        {entry->ifa_name, text_of(entry->ifa_addr)});
  }
  std::vector<std::string> addresses;
  for (const auto& each : ranked) {
    std::ranges::move(spread_over_interfaces(each), std::back_inserter(addresses));
  }
  if (addresses.empty()) {
    std::string known;
    for (const std::string& name : names) {
      known += (known.empty() ? "" : ", ") + name;
    }
    throw Error(ErrorCode::invalid_argument,
                "network interface \"" + interface +
                    "\" has no address here; those that have one: " + (known.empty() ? "none" : known));
  }
  return addresses;
}

std::string host_identity() {
  struct stat space {};  // containers of one machine share its boot, but not its loopback
  const bool known = stat("/proc/self/ns/net", &space) == 0;
  return first_line("/proc/sys/kernel/random/boot_id") + "/" + (known ? std::to_string(space.st_ino) : "");
}

std::vector<std::string> addresses_for(const std::string& interface, bool one_host) {
  const std::vector<std::string> all = own_addresses(interface);
  std::vector<std::string> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [&](const std::string& address) {
    return (address.starts_with("127.") || address == "::1") == one_host;
  });
  return chosen.empty() || !interface.empty() ? all : chosen;
}

Listener listen_at(const std::string& address, std::string& why) {
  const auto found = numeric(address, 0, why);
  if (!found) {
    return {};
  }
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (!socket.valid() || bind(socket.fd(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0 ||
      getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    why = address + ": " + system_text(errno);
    return {};
  }
  const std::uint16_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                         : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return {.socket = std::move(socket), .port = ntohs(port)};
}

Socket connect_until(const std::string& address, std::uint16_t port, Clock::time_point deadline, std::string& why) {
  const auto found = numeric(address, port, why);
  if (!found) {
    return {};
  }
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int code = errno;
  if (socket.valid()) {
    code = connect(socket.fd(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
      socklen_t length = sizeof(code);
      code = poll_until(socket.fd(), POLLOUT, deadline) <= 0                      ? ETIMEDOUT
             : getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &code, &length) != 0 ? errno
                                                                                  : code;
    }
  }
  if (code != 0) {
    why = system_text(code);
    return {};
  }
  return socket;
}

bool shakes_hands(const Socket& socket, Clock::time_point deadline) noexcept {
  while (shake_hands(socket) != 1) {
    if (errno != EAGAIN || poll_until(socket.fd(), POLLIN, deadline) <= 0) {
      return false;
    }
  }
  return true;
}

bool write_until(const Socket& socket, std::span<const std::byte> data, Clock::time_point deadline) {
  while (!data.empty()) {
    const iovec part{const_cast<std::byte*>(data.data()),
                     data.size()};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    const ssize_t count = send_some(socket, std::span(&part, 1));
    if (count >= 0) {
      data = data.subspan(static_cast<std::size_t>(count));
    } else if ((errno != EAGAIN && errno != EINTR) ||
               poll_until(socket.fd(), in_handshake(socket) ? POLLIN : POLLOUT, deadline) <= 0) {
      return false;
    }
  }
  return true;
}

bool read_until(const Socket& socket, std::span<std::byte> data, Clock::time_point deadline, const Socket& woken) {
  while (!data.empty()) {
    const ssize_t count = receive_some(socket, data);
    if (count > 0) {
      data = data.subspan(static_cast<std::size_t>(count));
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR) ||
               poll_until(socket.fd(), POLLIN, deadline, woken.fd()) <= 0) {
      return false;
    }
  }
  return true;
}

void set_up(const Socket& socket, Carries what) {
  const int on = 1;
  const bool lane = what == Carries::lane;
  const int idle_s = lane ? 3 : 10;
  const int interval_s = lane ? 1 : 5;
  const int probes = lane ? 3 : 4;
  const int unanswered_ms = lane ? 6'000 : 30'000;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  if (lane) {
    // With few packets in flight, a lost one is sent again every 200 ms or so, instead of after twice as long each
    // time: otherwise a link that was down for 0.7 s stays silent for 1.4 s, and a process seems to be missing. The
    // system does so only for a congestion control that knows a first loss, which Reno does and BBR does not.
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, "reno", sizeof("reno") - 1);
  }
  if (what != Carries::messages) {
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
  }
}

bool is_at_end(const Socket& socket) noexcept {
  if (has_unread(socket)) {
    return false;
  }
  std::byte any{};
  const ssize_t count = ::recv(socket.fd(), &any, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace gradwire::transport::tcp
