#include "transport/tcp/tcp_packet.hpp"

#include "wire/bytes.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::transport::tcp {
namespace {

std::uint32_t crc_of(const PacketHead& head) noexcept {
  return wire::crc32c(std::as_bytes(std::span(&head, 1)).first(offsetof(PacketHead, head_crc)));
}

}  // namespace

PacketHead make_head(PacketKind kind, std::uint64_t number, std::uint64_t acknowledged,
                     std::span<const std::byte> body) noexcept {
  const PacketHead head{.bytes = static_cast<std::uint32_t>(body.size()),
                        .kind = kind,
                        .number = number,
                        .acknowledged = acknowledged,
                        .body_crc = wire::crc32c(body)};
  return with_right_checksum(head);
}

PacketHead with_right_checksum(PacketHead head) noexcept {
  head.head_crc = crc_of(head);
  return head;
}

wire::Bytes make_packet(PacketKind kind, std::uint64_t acknowledged, std::span<const std::byte> body) {
  const PacketHead head = make_head(kind, 0, acknowledged, body);
  wire::Bytes packet;
  wire::put(packet, &head, sizeof(head));
  wire::put(packet, body.data(), body.size());
  return packet;
}

PacketReader::Next PacketReader::next(PacketHead& head, std::span<const std::byte>& body) {
  const auto more = [this] {
    unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
    if (unread_.empty()) {
      empty(unread_);
    }
    return Next::more;
  };
  if (unread_.size() - at_ < sizeof(head)) {
    return more();
  }
  std::memcpy(&head, unread_.data() + at_, sizeof(head));
  if (head.head_crc != crc_of(head) || head.bytes > kLongestPacket) {  // the length counts only with a right checksum
    return Next::damaged;
  }
  if (unread_.size() - at_ - sizeof(head) < head.bytes) {
    return more();
  }
  body = std::span(unread_).subspan(at_ + sizeof(head), head.bytes);
  if (head.body_crc != wire::crc32c(body)) {
    return Next::damaged;
  }
  at_ += sizeof(head) + head.bytes;
  return Next::packet;
}

}  // namespace gradwire::transport::tcp
