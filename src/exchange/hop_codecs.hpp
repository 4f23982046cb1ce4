// The codec of each encoding on a gradient's way: ranks encode with the first, the owner of a shard with the second;
// where nodes exchange sums of their own, with a third between these.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::exchange {

/// What a message carries, and which encoding its frame comes from. The numbers travel: in frames and in tags.
enum class Hop : std::uint8_t {
  own = 0,      // a rank's own values
  result = 1,   // what an owner has encoded
  control = 2,  // no frame: agreements
  weight = 3,   // no frame: a rank's weight
  node = 4,     // the sum over the ranks of a node
};
inline constexpr std::uint32_t kHopBits = 3;  // of a tag
/// In the order in which a collective sends them.
inline constexpr std::array kHops{Hop::own, Hop::node, Hop::result, Hop::control, Hop::weight};

struct HopCodecs {
  codec::Codec first;
  codec::Codec second;  // collectives that encode once do not use it
  codec::Codec node;    // of sums over a node; only hierarchical ones use it

  HopCodecs(codec::Codec both) : HopCodecs(both, both) {}  // NOLINT(google-explicit-constructor): mostly one
  HopCodecs(codec::Codec one, codec::Codec other) : HopCodecs(one, other, one) {}
  HopCodecs(codec::Codec one, codec::Codec other, codec::Codec between) : first(one), second(other), node(between) {}

  [[nodiscard]] const codec::Codec& of(Hop hop) const noexcept {
    return hop == Hop::result ? second : hop == Hop::node ? node : first;
  }
  /// Values on their way to the sum keep the tensor's own dtype, in which w x may have no place: so weights go first.
  [[nodiscard]] bool scales_first() const noexcept { return !first.lossy() && !node.lossy(); }
  /// Of a weighted call: nothing is encoded before the sum of weights is known.
  [[nodiscard]] bool weights_first(bool folds_owner) const noexcept { return scales_first() || folds_owner; }
  /// Payload of a full tile in the largest encoding.
  [[nodiscard]] std::uint64_t tile_bytes() const noexcept {
    return std::max({first.payload_bytes(codec::kTileElements), second.payload_bytes(codec::kTileElements),
                     node.payload_bytes(codec::kTileElements)});
  }
};

}  // namespace gradwire::exchange
