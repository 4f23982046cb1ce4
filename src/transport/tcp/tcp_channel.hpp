// Messages between processes outside the steps, over lanes whose connections may break and are made anew. The end of a
// connection does not mean that its process has ended.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "transport/tcp/tcp_lane.hpp"
#include "transport/tcp/tcp_socket.hpp"
#include "transport/tcp/tcp_wake_up.hpp"

namespace gradwire::transport::tcp {

/// Something else that hear() waits for.
class Watched {
 public:
  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  virtual ~Watched() = default;
  /// Adds its descriptors to those that hear() polls.
  virtual void list(std::vector<pollfd>& polled) = 0;
  /// Handles the results for the descriptors that it added; nobody else reads from them.
  virtual void look(std::span<const pollfd> polled) = 0;
};

class Channel {
 public:
  Channel() = default;

  /// Adds a lane and returns its number, counted from 0. Any thread may call this.
  std::uint32_t add(Socket socket, TcpLane::Role role);
  /// Gives the lane a new connection. Any thread may call this.
  void offer(std::uint32_t lane, Socket socket);
  /// Breaks the lane's connection, which its other side reports as broken, if it is still the one of that attempt.
  void break_at(std::uint32_t lane, std::uint64_t attempt);
  /// Closes the lane: nothing more is received or sent. Any thread may call this.
  void close(std::uint32_t lane) noexcept;

  /// Sends a message without waiting: hear() sends what the connection does not take at once. Any thread may call this.
  /// Never throws.
  void send(std::uint32_t to, std::span<const std::byte> message, PacketKind kind = PacketKind::message) noexcept;
  /// Asks the process of the live lane `by` to make the connection of its other lane, `broken`, anew.
  void ask_again(std::uint32_t by, std::uint32_t broken);
  /// Number of bytes that wait for the connection. Any thread may call this.
  [[nodiscard]] std::uint64_t unsent(std::uint32_t to) const noexcept;
  [[nodiscard]] bool live(std::uint32_t lane) const noexcept;
  /// Whether the lane's connection has ended, though hear() may not have reported that; also true where there is none.
  [[nodiscard]] bool is_at_end(std::uint32_t lane) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> secret(std::uint32_t lane) const noexcept;

  struct Heard {
    enum class What : std::uint8_t {
      message,
      farewell,
      word,
      again,
      broke,     // the connection broke; messages wait until it is made anew
      mended,    // the connection is there, or there again
      given_up,  // too much waits for the process: nothing more is received or sent
    };
    std::uint32_t from = 0;
    What what = What::message;
    std::vector<std::byte> body = {};  // for the first four kinds
    int code = 0;                      // `broke`: errno, or 0 where it was closed
    bool damaged = false;              // `broke`: bytes arrived that are no packet
  };
  /// Returns what has arrived, in order; waits for something, up to `wait`. One thread at a time.
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait, std::span<Watched* const> beside = {});
  /// Returns what has arrived on this lane until now. Called by the thread that hears.
  [[nodiscard]] std::vector<Heard> drain(std::uint32_t lane);
  /// Ends a wait in hear(). Any thread may call this.
  void wake() noexcept { wake_.set(); }
  /// Sends `last` on all lanes as their last packet, and waits a moment until the kernels of the others have
  /// everything. Any thread may call this; messages that arrive meanwhile are lost.
  void end(std::span<const std::byte> last) noexcept;

 private:
  struct Peer {
    Peer(Socket socket, TcpLane::Role role) : lane(std::move(socket), role) {}
    mutable Mutex mutex;
    TcpLane lane GUARDED_BY(mutex);
    std::atomic<bool> given_up = false;  // hear() must report it
  };

  [[nodiscard]] Peer* peer_at(std::uint32_t id) const noexcept;
  [[nodiscard]] static bool has_all_of(Peer& peer) noexcept;
  static void take(std::uint32_t from, Peer& peer, std::vector<Heard>& heard, std::size_t most_bytes)
      REQUIRES(peer.mutex);

  mutable SharedMutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_ GUARDED_BY(mutex_);  // objects behind pointers stay in place
  bool ended_ GUARDED_BY(mutex_) = false;
  WakeUp wake_;
};

}  // namespace gradwire::transport::tcp
