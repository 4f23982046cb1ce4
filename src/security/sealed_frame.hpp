// Frames of wire version 3: the frame of version 2 whose payload is encrypted, with its header and the transport's tag
// as associated data. docs/reference/sealed-frames.md is the byte-level text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "security/sealing.hpp"

namespace gradwire::security {

/// Seals a frame of version 2 in place: `frame` is its header and payload, and kSealBytes of room behind them. A CRC is
/// checked, but not sent. The frame is sealed once, and may then be sent to several ranks under `tag`. Errors are those
/// of parse_header() and Sealer::seal().
void seal_frame(Sealer& sealer, std::uint32_t tag, std::span<std::byte> frame);

/// Opens a frame that came under `tag` in place and returns the frame of version 2, with its CRC, in its first bytes.
/// Error(corrupt) that names the sender where the frame is not sealed, or as Opener::open() does; Error(mismatch) for a
/// later version. The caller compares the header with the one that it expects.
[[nodiscard]] std::span<std::byte> open_frame(Opener& opener, std::uint32_t tag, std::span<std::byte> frame);

}  // namespace gradwire::security
