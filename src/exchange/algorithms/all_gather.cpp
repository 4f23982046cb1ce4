// all_gather: each rank sends its encoded segment to all; everyone, the sender too, decodes the same bytes.
#include "exchange/collectives.hpp"

namespace gradwire::exchange {
namespace {

Lane all_gather_lane(const Shape& shape, const Partition& partition, std::uint64_t index) {
  const int world = shape.world_size;
  Lane lane;
  lane.series = partition.series(index);
  const Slot first_received = 0;
  for (int distance = 1; distance < world; ++distance) {
    const int peer = peer_after(shape, world - distance);
    if (const Chunk theirs = partition.chunk(peer, index); !theirs.empty()) {
      lane.instructions.push_back(
          {.opcode = Opcode::receive, .slot = lane.add_slot(), .peer = peer, .hop = Hop::own, .chunk = theirs});
    }
  }
  if (const Chunk own = partition.chunk(shape.rank, index); !own.empty()) {
    const Slot slot = lane.add_slot();
    lane.instructions.push_back(
        {.opcode = Opcode::encode, .slot = slot, .hop = Hop::own, .site = codec::EncodeSite::local, .chunk = own});
    for (int distance = 1; distance < world; ++distance) {
      lane.instructions.push_back(
          {.opcode = Opcode::send, .slot = slot, .peer = peer_after(shape, distance), .hop = Hop::own, .chunk = own});
    }
    lane.instructions.push_back(
        {.opcode = Opcode::decode, .slot = slot, .peer = shape.rank, .hop = Hop::own, .chunk = own});
  }
  Slot slot = first_received;
  for (int distance = 1; distance < world; ++distance) {
    const int peer = peer_after(shape, world - distance);
    if (const Chunk theirs = partition.chunk(peer, index); !theirs.empty()) {
      lane.instructions.push_back(
          {.opcode = Opcode::decode, .slot = slot++, .peer = peer, .hop = Hop::own, .chunk = theirs});
    }
  }
  return lane;
}

}  // namespace

Schedule all_gather(const Shape& shape, std::span<const std::uint64_t> counts, const HopCodecs& codecs) {
  const Partition partition = Partition::segments(counts, codecs, shape.chunk_bytes);
  if (shape.world_size == 1) {
    return copy_schedule("all-gather", partition);
  }
  return {"all-gather", partition.lanes(),
          [shape, partition](std::uint64_t index) { return all_gather_lane(shape, partition, index); }};
}

}  // namespace gradwire::exchange
