// The codecs of a call that its caller did not name: inside nodes, and of the second hop.
#pragma once

#include <optional>

#include "gradwire/codec_spec.hpp"

namespace gradwire::exchange {

/// The codec of hierarchical inside nodes: `asked` where it is set, otherwise bf16, or exact where `codec` loses
/// nothing.
[[nodiscard]] CodecSpec intra_codec(const CodecSpec& codec, const std::optional<CodecSpec>& asked);
/// The codec with which the owner encodes the sum: the same as for the parts. After topk it keeps k times the number of
/// parts, since each rank selected elements of its own, or it is int4 where that takes fewer bytes.
[[nodiscard]] CodecSpec default_second_hop(const CodecSpec& codec, int parts);
/// Payload bits of an element in a full tile.
[[nodiscard]] double bits_per_element(const CodecSpec& codec);

}  // namespace gradwire::exchange
