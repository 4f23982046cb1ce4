// The codec of each encoding on a gradient's way: ranks encode with the first, the owner of a shard with the second;
// where nodes exchange sums of their own, with a third between these.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::exchange {

/// The content of a message, and the encoding that its frame comes from. The numbers travel in frames and in tags.
enum class Hop : std::uint8_t {
  own = 0,      // a rank's own values
  result = 1,   // a sum that its owner has encoded
  control = 2,  // no frame: a message of Control
  weight = 3,   // no frame: a rank's weight
  node = 4,     // the sum over the ranks of a node
};
inline constexpr std::uint32_t kHopBits = 3;  // bits of a tag
/// The hops in the order in which a collective sends them.
inline constexpr std::array kHops{Hop::own, Hop::node, Hop::result, Hop::control, Hop::weight};

struct HopCodecs {
  codec::Codec first;
  codec::Codec second;  // unused in collectives that encode once
  codec::Codec node;    // for sums over a node; used in hierarchical ones only

  HopCodecs(codec::Codec both) : HopCodecs(both, both) {}  // NOLINT(google-explicit-constructor): mostly one
  HopCodecs(codec::Codec one, codec::Codec other) : HopCodecs(one, other, one) {}
  HopCodecs(codec::Codec one, codec::Codec other, codec::Codec between) : first(one), second(other), node(between) {}

  [[nodiscard]] const codec::Codec& of(Hop hop) const noexcept {
    return hop == Hop::result ? second : hop == Hop::node ? node : first;
  }
  /// Whether inputs are scaled by their share of the weights before they travel: values on their way to the sum keep
  /// the tensor's own dtype, and w x may be beyond it.
  [[nodiscard]] bool scales_first() const noexcept { return !first.lossy() && !node.lossy(); }
  /// Whether a weighted call must know the sum of weights before it encodes anything.
  [[nodiscard]] bool weights_first(bool folds_owner) const noexcept { return scales_first() || folds_owner; }
  /// Payload bytes of a full tile in the largest encoding.
  [[nodiscard]] std::uint64_t tile_bytes() const noexcept {
    return std::max({first.payload_bytes(codec::kTileElements), second.payload_bytes(codec::kTileElements),
                     node.payload_bytes(codec::kTileElements)});
  }
};

}  // namespace gradwire::exchange
