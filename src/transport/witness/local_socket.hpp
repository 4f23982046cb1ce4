// Unix sockets between processes of one host, which have names and no files: who is at the other end, and descriptors
// that go over them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::witness {

/// What the system says of processes. Tests have it say something else.
struct System {
  struct Peer {
    pid_t process = 0;  // 0: it cannot be seen from here, as from another container
    uid_t user = 0;
  };
  /// Of who is at the other end.
  std::function<std::optional<Peer>(const tcp::Socket& socket)> peer;
  /// Can be read once that process has ended. Not valid where the system refuses.
  std::function<tcp::Socket(pid_t process)> watch;

  [[nodiscard]] static System real();
};

/// Whether all went, and `descriptor` with it (-1: none). Does not wait.
[[nodiscard]] bool send_with(const tcp::Socket& socket, std::span<const std::byte> bytes, int descriptor) noexcept;

enum class Received : std::uint8_t { all, nothing, ended };
/// Exactly so many bytes that were sent at once, and the descriptor that came with them. `ended`: nothing more comes,
/// or something else came. Does not wait.
[[nodiscard]] Received receive_with(const tcp::Socket& socket, std::span<std::byte> bytes,
                                    tcp::Socket& descriptor) noexcept;
[[nodiscard]] Received receive_with(int socket, std::span<std::byte> bytes, tcp::Socket& descriptor) noexcept;

}  // namespace gradwire::transport::witness
