// Unix sockets between processes of one host, with names and without files. They tell which process is at the other
// end, and carry descriptors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::witness {

/// The system's answers about processes, which tests replace.
struct System {
  struct Peer {
    pid_t process = 0;  // 0: it is not visible from here, for example in another container
    uid_t user = 0;
  };
  /// The process at the other end of a socket.
  std::function<std::optional<Peer>(const tcp::Socket& socket)> peer;
  /// A descriptor that can be read once that process has ended; not valid where the system refuses.
  std::function<tcp::Socket(pid_t process)> watch;

  [[nodiscard]] static System real();
};

/// Sends all bytes, with `descriptor` (-1: none); returns whether that worked. Does not wait.
[[nodiscard]] bool send_with(const tcp::Socket& socket, std::span<const std::byte> bytes, int descriptor) noexcept;

enum class Received : std::uint8_t { all, nothing, ended };
/// Receives exactly as many bytes as `bytes` holds, which were sent at once, and the descriptor that came with them.
/// `ended`: nothing more comes, or something else came. Does not wait.
[[nodiscard]] Received receive_with(const tcp::Socket& socket, std::span<std::byte> bytes,
                                    tcp::Socket& descriptor) noexcept;
[[nodiscard]] Received receive_with(int socket, std::span<std::byte> bytes, tcp::Socket& descriptor) noexcept;

}  // namespace gradwire::transport::witness
