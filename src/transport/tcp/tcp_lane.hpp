// A TCP lane between two processes: numbered messages over a connection that may break and is made anew. Messages that
// were not acknowledged are kept and sent again over the next connection, so that none is lost, comes twice or out of
// order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "transport/tcp/tcp_packet.hpp"
#include "transport/tcp/tcp_socket.hpp"
#include "wire/bytes.hpp"

namespace gradwire::transport::tcp {

/// One thread at a time.
class TcpLane {
 public:
  /// The dialling side makes the connection anew and speaks first; the accepting side waits for it.
  enum class Role : std::uint8_t { dials, accepts };
  TcpLane(Socket first, Role role);

  // Sending.
  /// Queues a packet. False: so much waits for a process that takes nothing that this lane is given up.
  [[nodiscard]] bool push(PacketKind kind, std::span<const std::byte> body);
  /// Sends a packet without a number. It is dropped where there is no connection.
  void push_unnumbered(PacketKind kind, std::span<const std::byte> body);
  /// Sends as much as the connection takes at once.
  void flush() noexcept;
  /// Bytes that this connection has not taken; without a connection all bytes that are kept.
  [[nodiscard]] std::uint64_t unsent() const noexcept { return unsent_; }
  /// Whether there is more to send, which may be an acknowledgement that is due.
  [[nodiscard]] bool has_more() const noexcept;
  /// Whether the other side's kernel has everything that was sent.
  [[nodiscard]] bool arrived() const noexcept;

  // Receiving.
  struct Taken {
    PacketKind kind = PacketKind::message;
    std::vector<std::byte> body;
  };
  enum class Change : std::uint8_t { none, broke, mended };
  /// Takes what has arrived so far, up to `most_bytes`.
  [[nodiscard]] Change take(std::vector<Taken>& taken, std::size_t most_bytes);
  /// Whether an acknowledgement is due, though nothing else is sent.
  [[nodiscard]] bool owes(Clock::time_point now) const noexcept;
  /// Whether an acknowledgement may become due.
  [[nodiscard]] bool will_owe() const noexcept { return live_ && received_ > acknowledged_number_; }
  void acknowledge();

  // Connections.
  /// Offers a new connection, which is used once its first packet is right.
  void offer(Socket socket);
  void drop() noexcept;
  /// Closes the lane: nothing more is received or sent; frees memory and connection.
  void close() noexcept;
  /// Sends what it can, then shuts this side's direction down.
  void shut() noexcept;
  [[nodiscard]] bool live() const noexcept { return live_; }
  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
  [[nodiscard]] const Socket& candidate() const noexcept { return candidate_; }
  /// The errno of the last break; 0: the connection ended, or damaged bytes arrived.
  [[nodiscard]] int why_broken() const noexcept { return why_; }
  [[nodiscard]] bool was_damaged() const noexcept { return damaged_; }
  /// The lane's secret; none: it is not known yet.
  [[nodiscard]] std::optional<std::uint64_t> secret() const noexcept { return secret_; }
  [[nodiscard]] std::uint64_t attempt() const noexcept { return attempt_; }

  /// Most bytes kept for a process that takes nothing: it is silent, and will be left out.
  static constexpr std::size_t kMostKept = 1U << 30U;

 private:
  struct Kept {
    PacketKind kind = PacketKind::message;
    wire::Bytes body;
  };

  [[nodiscard]] bool stage();
  void begin_resuming();
  [[nodiscard]] bool fill(const Socket& socket, PacketReader& reader, std::size_t& most_bytes, int& why, bool& gone);
  [[nodiscard]] bool prove();
  [[nodiscard]] bool is_right(const PacketHead& head, std::span<const std::byte> body);
  [[nodiscard]] bool acknowledged(std::uint64_t number);

  Role role_;
  Socket socket_;
  Socket candidate_;  // accepting side: a connection that has not yet proven that it belongs to this lane
  PacketReader reader_;
  PacketReader candidate_reader_;
  bool live_ = false;    // both sides have said what they have received
  bool closed_ = false;  // for good
  bool damaged_ = false;
  int why_ = 0;
  std::optional<std::uint64_t> secret_;
  std::uint64_t attempt_ = 0;

  std::deque<Kept> kept_;         // packets that are not acknowledged
  std::uint64_t first_kept_ = 1;  // number of the first of them
  std::size_t kept_bytes_ = 0;
  std::size_t sent_ = 0;  // number of kept packets that this connection has sent whole
  std::uint64_t unsent_ = 0;
  std::deque<wire::Bytes> unnumbered_;
  // The packet that is being sent.
  PacketHead head_;
  std::span<const std::byte> staged_body_;
  wire::Bytes staged_unnumbered_;
  std::size_t staged_sent_ = 0;
  enum class Staged : std::uint8_t { nothing, kept, unnumbered } staged_ = Staged::nothing;

  std::uint64_t received_ = 0;             // number of the last received packet
  std::uint64_t acknowledged_number_ = 0;  // the last packet that the other side knows to have arrived
  std::size_t bytes_to_acknowledge_ = 0;
  Clock::time_point to_acknowledge_since_;
};

}  // namespace gradwire::transport::tcp
