// What travels on a connection between two processes: packets, each with its length, its number, what its sender has
// received, and checksums. Whatever is not exactly that says that the connection is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace gradwire::transport::tcp {

enum class PacketKind : std::uint32_t {
  // Those with a number, which come once and in order.
  message = 1,
  farewell,  // EndOfProcess: its sender ends; nothing more comes
  word,      // EndOfProcess: of another process, of which its sender was the witness
  // Those without.
  acknowledgement,  // only the head counts
  resume,           // Resume: the first one in each direction of a connection
  again,            // BrokenLane: a connection of the other lane is to be made anew
  agent,            // AgentGreeting: the first one of a connection on which an agent tells of its process
};
[[nodiscard]] constexpr bool has_number(PacketKind kind) { return kind <= PacketKind::word; }

struct PacketHead {
  std::uint32_t bytes = 0;  // of the body
  PacketKind kind = PacketKind::message;
  std::uint64_t number = 0;        // of those that have one, from 1
  std::uint64_t acknowledged = 0;  // the last number that its sender has received
  std::uint32_t body_crc = 0;
  std::uint32_t head_crc = 0;  // of what stands before
};
static_assert(sizeof(PacketHead) == 32, "no padding: it travels as bytes");

struct EndOfProcess {
  std::uint32_t who = 0;
  std::uint32_t epoch = 0;  // the last that it had entered
  std::uint64_t step = 0;   // the last that counted
};
struct Resume {
  std::uint64_t secret = 0;   // of the lane, so that no other process of the job takes it over
  std::uint64_t attempt = 0;  // the number of this connection; later ones replace earlier ones
};
struct BrokenLane {
  std::uint64_t attempt = 0;  // the last connection that its sender knows of
};
struct AgentGreeting {
  std::uint64_t secret = 0;  // of the prompt lane of its process
};

inline constexpr std::size_t kLongestPacket = (1U << 20U) + 64;

[[nodiscard]] PacketHead make_head(PacketKind kind, std::uint64_t number, std::uint64_t acknowledged,
                                   std::span<const std::byte> body) noexcept;
/// The same with the checksum of what it says now.
[[nodiscard]] PacketHead with_right_checksum(PacketHead head) noexcept;
[[nodiscard]] std::vector<std::byte> make_packet(PacketKind kind, std::uint64_t acknowledged,
                                                 std::span<const std::byte> body);

template <typename Body>
[[nodiscard]] std::span<const std::byte> bytes_of_body(const Body& body) {
  static_assert(std::has_unique_object_representations_v<Body>, "it travels as bytes");
  return std::as_bytes(std::span(&body, 1));
}
/// False where the length is another one.
template <typename Body>
[[nodiscard]] bool read_body(std::span<const std::byte> bytes, Body& body) {
  if (bytes.size() != sizeof(body)) {
    return false;
  }
  std::memcpy(&body, bytes.data(), sizeof(body));
  return true;
}

/// Gives the memory of long ones back: a copy was long, and the next may not come soon.
void empty(std::vector<std::byte>& bytes);

/// What has come of a connection, taken apart.
class PacketReader {
 public:
  enum class Next : std::uint8_t { packet, more, damaged };

  void add(std::span<const std::byte> bytes) { unread_.insert(unread_.end(), bytes.begin(), bytes.end()); }
  /// `more`: it has not come whole. The body is there until the next call. Behind `damaged` nothing can be read.
  [[nodiscard]] Next next(PacketHead& head, std::span<const std::byte>& body);
  void clear() {
    empty(unread_);
    at_ = 0;
  }

 private:
  std::vector<std::byte> unread_;
  std::size_t at_ = 0;  // of it, that is taken
};

}  // namespace gradwire::transport::tcp
