// The packets on a connection between two processes: each has its length, its number, the last number that its sender
// has received, and checksums. Any other bytes mean that the connection is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "wire/bytes.hpp"

namespace gradwire::transport::tcp {

enum class PacketKind : std::uint32_t {
  // Packets with a number come once and in order.
  message = 1,
  farewell,  // EndOfProcess: its sender ends; nothing more comes
  word,      // EndOfProcess: the end of another process, which its sender witnessed
  // The others have no number.
  acknowledgement,  // only the head matters
  resume,           // Resume: the first packet in each direction of a connection
  again,            // BrokenLane: the connection of the other lane must be made anew
  agent,            // AgentGreeting: the first packet of an agent's connection
};
[[nodiscard]] constexpr bool has_number(PacketKind kind) { return kind <= PacketKind::word; }

struct PacketHead {
  std::uint32_t bytes = 0;  // length of the body
  PacketKind kind = PacketKind::message;
  std::uint64_t number = 0;        // from 1; 0: the packet has none
  std::uint64_t acknowledged = 0;  // the last number that its sender has received
  std::uint32_t body_crc = 0;
  std::uint32_t head_crc = 0;  // checksum of the fields above
};
static_assert(sizeof(PacketHead) == 32, "no padding: it travels as bytes");

struct EndOfProcess {
  std::uint32_t who = 0;
  std::uint32_t epoch = 0;  // the last epoch that it had entered
  std::uint64_t step = 0;   // the last step that counted
};
struct Resume {
  std::uint64_t secret = 0;   // the lane's secret, so that no other process of the job can take the lane over
  std::uint64_t attempt = 0;  // the number of this connection; later ones replace earlier ones
};
struct BrokenLane {
  std::uint64_t attempt = 0;  // number of the last connection that its sender knows
};
struct AgentGreeting {
  std::uint64_t secret = 0;  // secret of its process's prompt lane
};

inline constexpr std::size_t kLongestPacket = (1U << 20U) + 64;

[[nodiscard]] PacketHead make_head(PacketKind kind, std::uint64_t number, std::uint64_t acknowledged,
                                   std::span<const std::byte> body) noexcept;
/// The same head with the right checksum.
[[nodiscard]] PacketHead with_right_checksum(PacketHead head) noexcept;
[[nodiscard]] wire::Bytes make_packet(PacketKind kind, std::uint64_t acknowledged, std::span<const std::byte> body);

template <typename Body>
[[nodiscard]] std::span<const std::byte> bytes_of_body(const Body& body) {
  static_assert(std::has_unique_object_representations_v<Body>, "it travels as bytes");
  return std::as_bytes(std::span(&body, 1));
}
/// Reads a body; false where its length is wrong.
template <typename Body>
[[nodiscard]] bool read_body(std::span<const std::byte> bytes, Body& body) {
  if (bytes.size() != sizeof(body)) {
    return false;
  }
  std::memcpy(&body, bytes.data(), sizeof(body));
  return true;
}

/// Empties the vector and frees its memory if that is large: it held a long message, and the next one may come late.
template <class Vector>
void empty(Vector& bytes) {
  constexpr std::size_t kShort = 4096;
  bytes.clear();
  if (bytes.capacity() > kShort) {
    Vector().swap(bytes);  // assigning {} would keep the memory
  }
}

/// Splits the bytes of a connection into packets.
class PacketReader {
 public:
  enum class Next : std::uint8_t { packet, more, damaged };

  void add(std::span<const std::byte> bytes) { unread_.insert(unread_.end(), bytes.begin(), bytes.end()); }
  /// The next packet. `more`: it has not arrived in full. The body is valid until the next call. Nothing can be read
  /// after `damaged`.
  [[nodiscard]] Next next(PacketHead& head, std::span<const std::byte>& body);
  void clear() {
    empty(unread_);
    at_ = 0;
  }

 private:
  std::vector<std::byte> unread_;  // not in the pool, which may refuse what has already arrived
  std::size_t at_ = 0;             // number of bytes that were taken
};

}  // namespace gradwire::transport::tcp
