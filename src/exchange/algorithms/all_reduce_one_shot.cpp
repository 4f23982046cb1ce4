// one_shot: every rank sends its encoded input to all; every rank decodes all frames in rank order, its own too. It has
// one latency instead of two, but sends (P-1) times the encoded bytes: for messages whose time is mostly latency.
#include <vector>

#include "exchange/collectives.hpp"

namespace gradwire::exchange {
namespace {

Lane one_shot_lane(const Shape& shape, const Partition& partition, bool weights_first, std::uint64_t index) {
  const int world = shape.world_size;
  const Chunk chunk = partition.chunk(0, index);
  Lane lane;
  std::vector<Slot> inputs(static_cast<std::size_t>(world));
  for (int distance = 1; distance < world; ++distance) {
    const int peer = peer_after(shape, world - distance);
    const Slot slot = lane.add_slot();
    inputs[static_cast<std::size_t>(peer)] = slot;
    lane.instructions.push_back(
        {.opcode = Opcode::receive, .slot = slot, .peer = peer, .hop = Hop::own, .chunk = chunk});
  }
  if (weights_first) {
    add_weight_exchange(lane, index, shape, kBeforeFirst);
  }
  const Slot own = lane.add_slot();
  inputs[static_cast<std::size_t>(shape.rank)] = own;
  lane.instructions.push_back(
      {.opcode = Opcode::encode, .slot = own, .hop = Hop::own, .site = codec::EncodeSite::local, .chunk = chunk});
  for (int distance = 1; distance < world; ++distance) {
    lane.instructions.push_back(
        {.opcode = Opcode::send, .slot = own, .peer = peer_after(shape, distance), .hop = Hop::own, .chunk = chunk});
  }
  if (!weights_first) {
    add_weight_exchange(lane, index, shape, kBesideFirst);
  }
  lane.instructions.push_back({.opcode = Opcode::reduce, .chunk = chunk, .inputs = std::move(inputs)});
  return lane;
}

}  // namespace

Schedule all_reduce_one_shot(const Shape& shape, std::uint64_t count, const HopCodecs& codecs) {
  const Partition partition = Partition::even(count, 1, codecs, shape.chunk_bytes);
  return {"one_shot all-reduce", partition.lanes(),
          [shape, partition, weights_first = weights_first(shape, codecs)](std::uint64_t index) {
            return one_shot_lane(shape, partition, weights_first, index);
          },
          // one_shot sends P - 1 times the elements, where 2 (P - 1) / P would suffice.
          shape.world_size > 1 ? Schedule::Share{2, static_cast<std::uint64_t>(shape.world_size)} : Schedule::Share{}};
}

}  // namespace gradwire::exchange
