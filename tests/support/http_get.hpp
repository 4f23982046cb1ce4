// A minimal HTTP client over IPv4 loopback, and ports for the servers of tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace gradwire::test {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// Returns a socket that listens on the port, or -1 if the port is taken. With 0 it takes any free port.
inline int listen_on(std::uint16_t port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in address = loopback(port);
  if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(descriptor, 4) == 0) {
    return descriptor;
  }
  ::close(descriptor);
  return -1;
}

inline std::uint16_t port_of(int descriptor) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

/// Returns a port followed by `count - 1` more that were all free a moment ago.
inline std::uint16_t free_ports(int count = 1) {
  while (true) {
    std::array<int, 16> descriptors{};
    const int first = descriptors[0] = listen_on(0);
    const std::uint16_t port = port_of(first);
    int have = 1;
    while (have < count && port + have < 65536) {
      const int next = listen_on(static_cast<std::uint16_t>(port + have));
      if (next < 0) {
        break;
      }
      descriptors.at(static_cast<std::size_t>(have++)) = next;
    }
    for (int i = 0; i < have; ++i) {
      ::close(descriptors.at(static_cast<std::size_t>(i)));
    }
    if (have == count) {
      return port;
    }
  }
}

/// Opens a connection; -1 if the port refuses it.
inline int connect_to(std::uint16_t port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

/// Sends the bytes and returns all that arrives until the other side closes, or until a limit of the socket passes.
/// Closes the descriptor.
inline std::string exchange_bytes(int descriptor, const std::string& request) {
  ::send(descriptor, request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 8192> buffer{};
  for (ssize_t got = 0; (got = ::recv(descriptor, buffer.data(), buffer.size(), 0)) > 0;) {
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(descriptor);
  return answer;
}

/// Returns the body of an answer with status 200; no value for another status, or if the connection is refused.
inline std::optional<std::string> http_get(std::uint16_t port, const std::string& path) {
  const int descriptor = connect_to(port);
  if (descriptor < 0) {
    return std::nullopt;
  }
  const std::string answer = exchange_bytes(descriptor, "GET " + path + " HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
  const std::size_t body = answer.find("\r\n\r\n");
  const std::size_t status = answer.find(' ');
  if (body == std::string::npos || answer.substr(status + 1, 3) != "200") {
    return std::nullopt;
  }
  return answer.substr(body + 4);
}

}  // namespace gradwire::test
