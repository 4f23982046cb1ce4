// The codec of each encoding on a gradient's way: ranks encode with the first, the owner of a shard with the second;
// where nodes exchange sums of their own, with a third between these.
#pragma once

#include <algorithm>
#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::collective {

// What a message carries, and which encoding its frame comes from. 0: a rank's own values; 1: a result.
inline constexpr std::uint8_t kHopControl = 2;
inline constexpr std::uint8_t kHopWeight = 3;
inline constexpr std::uint8_t kHopNode = 4;   // the sum over the ranks of a node
inline constexpr std::uint32_t kHopBits = 3;  // of a tag

struct HopCodecs {
  codec::Codec first;
  codec::Codec second;  // collectives that encode once do not use it
  codec::Codec node;    // of sums over a node; only hierarchical ones use it

  HopCodecs(codec::Codec both) : HopCodecs(both, both) {}  // NOLINT(google-explicit-constructor): mostly one
  HopCodecs(codec::Codec one, codec::Codec other) : HopCodecs(one, other, one) {}
  HopCodecs(codec::Codec one, codec::Codec other, codec::Codec between) : first(one), second(other), node(between) {}

  [[nodiscard]] const codec::Codec& of_hop(std::uint8_t hop) const noexcept {
    return hop == 1 ? second : hop == kHopNode ? node : first;
  }
  /// Values on their way to the sum keep the tensor's own dtype, in which w x may have no place: so weights go first.
  [[nodiscard]] bool scales_first() const noexcept { return !first.lossy() && !node.lossy(); }
  /// Payload of a full tile in the largest encoding.
  [[nodiscard]] std::uint64_t tile_bytes() const noexcept {
    return std::max({first.payload_bytes(codec::kTileElements), second.payload_bytes(codec::kTileElements),
                     node.payload_bytes(codec::kTileElements)});
  }
};

}  // namespace gradwire::collective
