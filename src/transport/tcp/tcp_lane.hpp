// One lane between two processes: messages with numbers over a connection that may break, and is made anew. What was
// not acknowledged is kept, and sent again over the next one, so that nothing is lost, comes twice or out of order.
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

namespace gradwire::transport::tcp {

/// Not for several threads at once.
class Lane {
 public:
  /// The dialling side makes the connection anew and speaks first; the accepting side waits for it.
  enum class Role : std::uint8_t { dials, accepts };
  Lane(Socket first, Role role);

  // What is sent.
  /// False: so much is kept for a process that takes nothing that this lane is given up.
  [[nodiscard]] bool push(PacketKind kind, std::span<const std::byte> body);
  /// Sends a packet without a number. It is dropped where there is no connection.
  void push_unnumbered(PacketKind kind, std::span<const std::byte> body);
  /// As much as the connection takes at once.
  void flush() noexcept;
  /// Bytes that this connection has not taken; all that is kept where there is none.
  [[nodiscard]] std::uint64_t unsent() const noexcept { return unsent_; }
  /// Also an acknowledgement that is due.
  [[nodiscard]] bool has_more() const noexcept;
  /// Whether the other side's system has all that was sent.
  [[nodiscard]] bool arrived() const noexcept;

  // What comes.
  struct Taken {
    PacketKind kind = PacketKind::message;
    std::vector<std::byte> body;
  };
  enum class Change : std::uint8_t { none, broke, mended };
  /// What has come so far; up to so many bytes.
  [[nodiscard]] Change take(std::vector<Taken>& taken, std::size_t most_bytes);
  /// Whether something came that should be acknowledged by now, though nothing is sent.
  [[nodiscard]] bool owes(Clock::time_point now) const noexcept;
  /// Whether an acknowledgement may become due.
  [[nodiscard]] bool will_owe() const noexcept { return live_ && received_ > acknowledged_number_; }
  void acknowledge();

  // Connections.
  /// A new one, which counts once its first packet is right.
  void offer(Socket socket);
  void drop() noexcept;
  /// Nothing more comes, or goes out; memory and connection are given back.
  void close() noexcept;
  /// Sends what it can, then the end of what this side sends.
  void shut() noexcept;
  [[nodiscard]] bool live() const noexcept { return live_; }
  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
  [[nodiscard]] const Socket& candidate() const noexcept { return candidate_; }
  /// Errno of the last break; 0: an end, or what came was damaged.
  [[nodiscard]] int why_broken() const noexcept { return why_; }
  [[nodiscard]] bool was_damaged() const noexcept { return damaged_; }
  /// None: nobody has said it yet.
  [[nodiscard]] std::optional<std::uint64_t> secret() const noexcept { return secret_; }
  [[nodiscard]] std::uint64_t attempt() const noexcept { return attempt_; }

  /// What is kept at most for one that takes nothing: it is silent, and will be left out.
  static constexpr std::size_t kMostKept = 1U << 30U;

 private:
  struct Kept {
    PacketKind kind = PacketKind::message;
    std::vector<std::byte> body;
  };

  [[nodiscard]] bool stage();
  void begin_resuming();
  [[nodiscard]] bool fill(const Socket& socket, PacketReader& reader, std::size_t& most_bytes, int& why, bool& gone);
  [[nodiscard]] bool prove();
  [[nodiscard]] bool is_right(const PacketHead& head, std::span<const std::byte> body);
  [[nodiscard]] bool acknowledged(std::uint64_t number);

  Role role_;
  Socket socket_;
  Socket candidate_;  // of the accepting side: a connection that has not proven yet that it belongs to this lane
  PacketReader reader_;
  PacketReader candidate_reader_;
  bool live_ = false;    // both sides have said what they had received
  bool closed_ = false;  // for good
  bool damaged_ = false;
  int why_ = 0;
  std::optional<std::uint64_t> secret_;
  std::uint64_t attempt_ = 0;

  std::deque<Kept> kept_;         // not acknowledged
  std::uint64_t first_kept_ = 1;  // its number
  std::size_t kept_bytes_ = 0;
  std::size_t sent_ = 0;  // of those kept, over this connection, whole
  std::uint64_t unsent_ = 0;
  std::deque<std::vector<std::byte>> unnumbered_;
  // The packet that is on its way.
  PacketHead head_;
  std::span<const std::byte> staged_body_;
  std::vector<std::byte> staged_unnumbered_;
  std::size_t staged_sent_ = 0;
  enum class Staged : std::uint8_t { nothing, kept, unnumbered } staged_ = Staged::nothing;

  std::uint64_t received_ = 0;             // the last number
  std::uint64_t acknowledged_number_ = 0;  // that the other side knows of
  std::size_t bytes_to_acknowledge_ = 0;
  Clock::time_point to_acknowledge_since_;
};

}  // namespace gradwire::transport::tcp
