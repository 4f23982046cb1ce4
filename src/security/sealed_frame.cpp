#include "security/sealed_frame.hpp"

#include "gradwire/error.hpp"
#include "wire/frame.hpp"

namespace gradwire::security {

void seal_frame(Sealer& sealer, std::span<std::byte> frame) {
  if (frame.size() < kSealBytes) {
    throw Error(ErrorCode::internal, "security: no room for a seal behind a frame");
  }
  const wire::FrameHeader header = wire::parse_header(frame.first(frame.size() - kSealBytes));
  if (header.version != kWireVersion) {
    throw Error(ErrorCode::internal, "security: only frames of this version are sealed");
  }
  wire::mark_sealed(frame);
  const std::size_t bytes = wire::header_bytes(header.flags);
  sealer.seal(frame.first(bytes), frame.subspan(bytes));
}

std::span<std::byte> open_frame(Opener& opener, std::span<std::byte> frame) {
  wire::FrameHeader header;
  try {
    header = wire::parse_sealed_header(frame);
  } catch (const Error& error) {
    throw Error(error.code(), "security: of " + opener.sender() + ", " + error.what(), error.cause());
  }
  const std::size_t bytes = wire::header_bytes(header.flags);
  opener.open(frame.first(bytes), frame.subspan(bytes));
  wire::mark_opened(frame);
  return frame.first(frame.size() - kSealBytes);
}

}  // namespace gradwire::security
