// broadcast: the root encodes once and scatters shards over the other ranks; each passes its shard on as received. So
// the root sends the data once at any world size (after van de Geijn's scatter + all-gather).
#include <vector>

#include "exchange/collectives.hpp"

namespace gradwire::exchange {
namespace {

// Shards belong to all ranks but the root, in rank order.
int shard_owner(int shard, int root) { return shard < root ? shard : shard + 1; }

Lane root_lane(const Shape& shape, const Partition& partition, std::uint64_t index) {
  Lane lane;
  lane.series = partition.series(index);
  for (int shard = 0; shard < shape.world_size - 1; ++shard) {
    if (const Chunk chunk = partition.chunk(shard, index); !chunk.empty()) {
      const Slot slot = lane.add_slot();
      lane.instructions.push_back(
          {.opcode = Opcode::encode, .slot = slot, .hop = Hop::own, .site = codec::EncodeSite::local, .chunk = chunk});
      lane.instructions.push_back({.opcode = Opcode::send,
                                   .slot = slot,
                                   .peer = shard_owner(shard, shape.rank),
                                   .hop = Hop::own,
                                   .chunk = chunk});
      lane.instructions.push_back(
          {.opcode = Opcode::decode, .slot = slot, .peer = shape.rank, .hop = Hop::own, .chunk = chunk});
    }
  }
  return lane;
}

Lane other_lane(const Shape& shape, int root, const Partition& partition, std::uint64_t index) {
  const int shards = shape.world_size - 1;
  const int own_shard = shape.rank < root ? shape.rank : shape.rank - 1;
  Lane lane;
  lane.series = partition.series(index);
  std::vector<Slot> slots(static_cast<std::size_t>(shards), 0);
  for (int shard = 0; shard < shards; ++shard) {
    if (const Chunk chunk = partition.chunk(shard, index); !chunk.empty()) {
      slots[static_cast<std::size_t>(shard)] = lane.add_slot();
      const int from = shard == own_shard ? root : shard_owner(shard, root);
      lane.instructions.push_back({.opcode = Opcode::receive,
                                   .slot = slots[static_cast<std::size_t>(shard)],
                                   .peer = from,
                                   .hop = shard == own_shard ? Hop::own : Hop::result,
                                   .round = shard == own_shard ? 0 : 1,
                                   .chunk = chunk});
    }
  }
  if (const Chunk own = partition.chunk(own_shard, index); !own.empty()) {
    for (int distance = 1; distance < shape.world_size; ++distance) {
      if (const int peer = peer_after(shape, distance); peer != root) {
        lane.instructions.push_back({.opcode = Opcode::send,
                                     .slot = slots[static_cast<std::size_t>(own_shard)],
                                     .peer = peer,
                                     .hop = Hop::result,
                                     .round = 1,
                                     .chunk = own});
      }
    }
  }
  for (int offset = 0; offset < shards; ++offset) {
    const int shard = (own_shard + offset) % shards;
    if (const Chunk chunk = partition.chunk(shard, index); !chunk.empty()) {
      lane.instructions.push_back({.opcode = Opcode::decode,
                                   .slot = slots[static_cast<std::size_t>(shard)],
                                   .peer = root,
                                   .hop = Hop::own,
                                   .chunk = chunk});
    }
  }
  return lane;
}

}  // namespace

Schedule broadcast(const Shape& shape, int root, std::uint64_t count, const HopCodecs& codecs) {
  if (shape.world_size == 1) {
    return copy_schedule("broadcast", Partition::even(count, 1, codecs, shape.chunk_bytes));
  }
  const Partition partition = Partition::even(count, shape.world_size - 1, codecs, shape.chunk_bytes);
  return {"broadcast", partition.lanes(), [shape, root, partition](std::uint64_t index) {
            return shape.rank == root ? root_lane(shape, partition, index) : other_lane(shape, root, partition, index);
          }};
}

}  // namespace gradwire::exchange
