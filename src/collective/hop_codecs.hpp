// The codec of each encoding on a gradient's way: ranks encode with the first, the owner of a shard with the second.
#pragma once

#include <algorithm>
#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::collective {

struct HopCodecs {
  codec::Codec first;
  codec::Codec second;  // collectives that encode once do not use it

  HopCodecs(codec::Codec both) : first(both), second(both) {}  // NOLINT(google-explicit-constructor): mostly one
  HopCodecs(codec::Codec one, codec::Codec other) : first(one), second(other) {}

  [[nodiscard]] const codec::Codec& of_hop(std::uint8_t hop) const noexcept { return hop == 1 ? second : first; }
  /// Payload of a full tile in the larger encoding.
  [[nodiscard]] std::uint64_t tile_bytes() const noexcept {
    return std::max(first.payload_bytes(codec::kTileElements), second.payload_bytes(codec::kTileElements));
  }
};

}  // namespace gradwire::collective
