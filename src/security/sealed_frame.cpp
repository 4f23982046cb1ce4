#include "security/sealed_frame.hpp"

#include <array>
#include <cstring>

#include "gradwire/error.hpp"
#include "wire/frame.hpp"

namespace gradwire::security {
namespace {

// Holds the associated data of a frame: its header, then the tag of the transport.
struct Associated {
  Associated(std::span<const std::byte> header, std::uint32_t tag) : count(header.size() + sizeof tag) {
    std::memcpy(bytes.data(), header.data(), header.size());
    std::memcpy(bytes.data() + header.size(), &tag, sizeof tag);
  }
  [[nodiscard]] std::span<const std::byte> all() const noexcept { return std::span(bytes).first(count); }

  std::array<std::byte, wire::kHeaderBytes + wire::kLengthBytes + sizeof(std::uint32_t)> bytes{};
  std::size_t count;
};

}  // namespace

void seal_frame(Sealer& sealer, std::uint32_t tag, std::span<std::byte> frame) {
  if (frame.size() < kSealBytes) {
    throw Error(ErrorCode::internal, "security: no room for a seal behind a frame");
  }
  const wire::FrameHeader header = wire::parse_header(frame.first(frame.size() - kSealBytes));
  if (header.version != kWireVersion) {
    throw Error(ErrorCode::internal, "security: only frames of this version are sealed");
  }
  wire::mark_sealed(frame);
  const std::size_t bytes = wire::header_bytes(header.flags);
  sealer.seal(Associated(frame.first(bytes), tag).all(), frame.subspan(bytes));
}

std::span<std::byte> open_frame(Opener& opener, std::uint32_t tag, std::span<std::byte> frame) {
  wire::FrameHeader header;
  try {
    header = wire::parse_sealed_header(frame);
  } catch (const Error& error) {
    throw Error(error.code(), "security: of " + opener.sender() + ", " + error.what(), error.cause());
  }
  const std::size_t bytes = wire::header_bytes(header.flags);
  opener.open(Associated(frame.first(bytes), tag).all(), frame.subspan(bytes));
  const std::span<std::byte> opened = frame.first(frame.size() - kSealBytes);
  wire::mark_opened(opened);
  return opened;
}

}  // namespace gradwire::security
