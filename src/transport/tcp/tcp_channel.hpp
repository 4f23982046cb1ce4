// Messages over connections, each with its length before it: what processes tell each other beside the steps. The end
// of a process is the end of its connections, which the system tells the others at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

class Channel {
 public:
  /// Those that are not valid lead nowhere.
  explicit Channel(std::vector<Socket> sockets);

  /// One connection more, and its number: they count from 0. Any thread.
  std::uint32_t add(Socket socket);

  /// Any thread. Does not wait: what a connection does not take at once goes out in hear(). Never throws.
  void send(std::uint32_t to, std::span<const std::byte> message) noexcept;
  /// Bytes that wait for the connection. Any thread.
  [[nodiscard]] std::uint64_t unsent(std::uint32_t to) const noexcept;

  struct Heard {
    std::uint32_t from = 0;
    bool ended = false;  // nothing more comes
    bool lost = false;   // likewise, but the way there broke: the process may not have ended
    std::vector<std::byte> message = {};
  };
  /// What has come, in order; waits for something, up to `wait`. One thread at a time.
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait);
  /// Ends a wait in hear(). Any thread.
  void wake() noexcept;
  /// Ends all connections. What was sent before arrives. Any thread.
  void end() noexcept;

  static constexpr std::size_t kLongestMessage = (1 << 20) + 64;

 private:
  struct Peer {
    explicit Peer(Socket made) : socket(std::move(made)) {}
    Socket socket;
    mutable std::mutex mutex;     // of what follows
    std::vector<std::byte> late;  // did not go out at once
    std::size_t sent = 0;         // of it, since
    bool broken = false;          // nothing more goes out
    // Written by hear() alone.
    std::vector<std::byte> unread;
    std::atomic<bool> closed = false;  // nothing more comes
  };

  /// Null: it leads nowhere.
  [[nodiscard]] Peer* peer_at(std::uint32_t id) const noexcept;

  /// The caller holds the peer's lock.
  static void flush(Peer& peer) noexcept;
  static void take(std::uint32_t from, Peer& peer, std::vector<Heard>& heard);

  mutable std::shared_mutex mutex_;           // of what follows; what a pointer points to stays
  std::vector<std::unique_ptr<Peer>> peers_;  // null: it leads nowhere
  bool ended_ = false;
  Socket wake_;
};

}  // namespace gradwire::transport::tcp
