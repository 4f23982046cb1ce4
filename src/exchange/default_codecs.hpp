// The codecs of a call that its caller did not name: inside nodes, and of the second hop.
#pragma once

#include <optional>

#include "gradwire/codec_spec.hpp"

namespace gradwire::exchange {

/// What hierarchical uses inside nodes beside `codec`: what is asked for, else bf16; exact with exact.
[[nodiscard]] CodecSpec intra_codec(const CodecSpec& codec, const std::optional<CodecSpec>& asked);
/// The owner encodes the sum as the ranks encode their parts; after topk it keeps k times the number of parts, since
/// each rank chose its own, or where int4 of all takes fewer bytes, that.
[[nodiscard]] CodecSpec default_second_hop(const CodecSpec& codec, int parts);
/// Payload bits an element takes in a full tile.
[[nodiscard]] double bits_per_element(const CodecSpec& codec);

}  // namespace gradwire::exchange
