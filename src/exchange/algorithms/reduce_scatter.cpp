// reduce_scatter: the first hop of two_shot; the owner keeps the sum, which is not encoded again.
#include <utility>
#include <vector>

#include "exchange/collectives.hpp"

namespace gradwire::exchange {
namespace {

Lane reduce_scatter_lane(const Shape& shape, const Partition& partition, bool weights_first, std::uint64_t index) {
  const int world = shape.world_size;
  const Chunk own = partition.chunk(shape.rank, index);
  Lane lane;
  lane.series = partition.series(index);
  std::vector<Slot> inputs(static_cast<std::size_t>(world), kOwnInput);
  for (int distance = 1; distance < world && !own.empty(); ++distance) {
    const int peer = peer_after(shape, world - distance);
    const Slot slot = lane.add_slot();
    inputs[static_cast<std::size_t>(peer)] = slot;
    lane.instructions.push_back({.opcode = Opcode::receive, .slot = slot, .peer = peer, .hop = Hop::own, .chunk = own});
  }
  if (weights_first) {
    add_weight_exchange(lane, index, shape, kBeforeFirst);
  }
  for (int distance = 1; distance < world; ++distance) {
    const int peer = peer_after(shape, distance);
    if (const Chunk theirs = partition.chunk(peer, index); !theirs.empty()) {
      const Slot slot = lane.add_slot();
      lane.instructions.push_back(
          {.opcode = Opcode::encode, .slot = slot, .hop = Hop::own, .site = codec::EncodeSite::local, .chunk = theirs});
      lane.instructions.push_back(
          {.opcode = Opcode::send, .slot = slot, .peer = peer, .hop = Hop::own, .chunk = theirs});
    }
  }
  if (!weights_first) {
    add_weight_exchange(lane, index, shape, kBesideFirst);
  }
  if (!own.empty()) {
    lane.instructions.push_back({.opcode = Opcode::reduce, .chunk = own, .inputs = std::move(inputs)});
  }
  return lane;
}

}  // namespace

Schedule reduce_scatter(const Shape& shape, std::span<const std::uint64_t> counts, const HopCodecs& codecs) {
  const Partition partition = Partition::segments(counts, codecs, shape.chunk_bytes);
  if (shape.world_size == 1) {
    return copy_schedule("reduce-scatter", partition);
  }
  return {"reduce-scatter", partition.lanes(),
          [shape, partition, weights_first = weights_first(shape, codecs)](std::uint64_t index) {
            return reduce_scatter_lane(shape, partition, weights_first, index);
          }};
}

}  // namespace gradwire::exchange
