// Messages over lanes whose connections may break and are made anew: what processes tell each other beside the steps.
// That a connection ends says nothing of its process.
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

/// What else hear() waits for.
class Watched {
 public:
  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  virtual ~Watched() = default;
  /// Adds its descriptors.
  virtual void list(std::vector<pollfd>& polled) = 0;
  /// What came of those that it added: nothing of them is taken elsewhere.
  virtual void look(std::span<const pollfd> polled) = 0;
};

class Channel {
 public:
  Channel() = default;

  /// One lane more, and its number: they count from 0. Any thread.
  std::uint32_t add(Socket socket, Lane::Role role);
  /// A new connection for the lane. Any thread.
  void offer(std::uint32_t lane, Socket socket);
  /// The connection that its other side calls broken, if it is still that one.
  void break_at(std::uint32_t lane, std::uint64_t attempt);
  /// Nothing more comes from it, or goes to it. Any thread.
  void close(std::uint32_t lane) noexcept;

  /// Any thread. Does not wait: what a connection does not take at once goes out in hear(). Never throws.
  void send(std::uint32_t to, std::span<const std::byte> message, PacketKind kind = PacketKind::message) noexcept;
  /// To the process of this live lane: the connection of its other lane `broken` is to be made anew.
  void ask_again(std::uint32_t by, std::uint32_t broken);
  /// Bytes that wait for the connection. Any thread.
  [[nodiscard]] std::uint64_t unsent(std::uint32_t to) const noexcept;
  [[nodiscard]] bool live(std::uint32_t lane) const noexcept;
  /// Whether its connection is at its end, though nobody may have heard that yet; also where there is none.
  [[nodiscard]] bool is_at_end(std::uint32_t lane) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> secret(std::uint32_t lane) const noexcept;

  struct Heard {
    enum class What : std::uint8_t {
      message,
      farewell,
      word,
      again,
      broke,     // its connection: what is sent waits until it is made anew
      mended,    // it is there, or there again
      given_up,  // too much waits for it: nothing more comes, or goes
    };
    std::uint32_t from = 0;
    What what = What::message;
    std::vector<std::byte> body = {};  // of the first four
    int code = 0;                      // `broke`: errno, or 0 where it was closed
    bool damaged = false;              // likewise: what came was no packet
  };
  /// What has come, in order; waits for something, up to `wait`. One thread at a time.
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait, std::span<Watched* const> beside = {});
  /// What has come of this lane until now. By the thread that hears.
  [[nodiscard]] std::vector<Heard> drain(std::uint32_t lane);
  /// Ends a wait in hear(). Any thread.
  void wake() noexcept { wake_.set(); }
  /// Sends `last` on all lanes as their last packet, and waits a moment until the others' systems have all that was
  /// sent. Any thread; what comes meanwhile is lost.
  void end(std::span<const std::byte> last) noexcept;

 private:
  struct Peer {
    Peer(Socket socket, Lane::Role role) : lane(std::move(socket), role) {}
    mutable Mutex mutex;
    Lane lane GUARDED_BY(mutex);
    std::atomic<bool> given_up = false;  // hear() is to say so
  };

  [[nodiscard]] Peer* peer_at(std::uint32_t id) const noexcept;
  [[nodiscard]] static bool has_all_of(Peer& peer) noexcept;
  static void take(std::uint32_t from, Peer& peer, std::vector<Heard>& heard, std::size_t most_bytes)
      REQUIRES(peer.mutex);

  mutable SharedMutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_ GUARDED_BY(mutex_);  // what a pointer points to stays
  bool ended_ GUARDED_BY(mutex_) = false;
  WakeUp wake_;
};

}  // namespace gradwire::transport::tcp
