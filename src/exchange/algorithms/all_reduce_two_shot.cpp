// two_shot: each rank sends every other rank its encoded part of that rank's shard; the owner adds in rank order, its
// own part uncoded, and encodes once; everyone, the owner too, decodes the same bytes. Two encodings per element at any
// world size, 2 (P-1)/P of the encoded bytes on the wire. Lane i carries chunk i of every shard.
#include <vector>

#include "exchange/collectives.hpp"

namespace gradwire::exchange {
namespace {

using codec::EncodeSite;

Lane two_shot_lane(const Shape& shape, const Partition& partition, bool weights_first, std::uint64_t index) {
  const int world = shape.world_size;
  const Chunk own = partition.chunk(shape.rank, index);
  Lane lane;
  lane.series = partition.series(index);
  std::vector<Slot> inputs(static_cast<std::size_t>(world), kOwnInput);
  std::vector<Slot> results(static_cast<std::size_t>(world), kOwnInput);
  for (int distance = 1; distance < world; ++distance) {
    const int peer = peer_after(shape, world - distance);
    const auto at = static_cast<std::size_t>(peer);
    if (!own.empty()) {
      inputs[at] = lane.add_slot();
      lane.instructions.push_back(
          {.opcode = Opcode::receive, .slot = inputs[at], .peer = peer, .hop = Hop::own, .chunk = own});
    }
    if (const Chunk theirs = partition.chunk(peer, index); !theirs.empty()) {
      results[at] = lane.add_slot();
      lane.instructions.push_back({.opcode = Opcode::receive,
                                   .slot = results[at],
                                   .peer = peer,
                                   .hop = Hop::result,
                                   .round = 1,
                                   .chunk = theirs});
    }
  }
  if (weights_first) {
    add_weight_exchange(lane, index, shape, kBeforeFirst);
  }
  for (int distance = 1; distance < world; ++distance) {
    const int peer = peer_after(shape, distance);
    if (const Chunk theirs = partition.chunk(peer, index); !theirs.empty()) {
      const Slot slot = lane.add_slot();
      lane.instructions.push_back(
          {.opcode = Opcode::encode, .slot = slot, .hop = Hop::own, .site = EncodeSite::local, .chunk = theirs});
      lane.instructions.push_back(
          {.opcode = Opcode::send, .slot = slot, .peer = peer, .hop = Hop::own, .chunk = theirs});
    }
  }
  if (!weights_first) {
    add_weight_exchange(lane, index, shape, kBesideFirst);
  }
  if (!own.empty()) {
    const Slot slot = lane.add_slot();
    lane.instructions.push_back({.opcode = Opcode::reduce_encode,
                                 .slot = slot,
                                 .hop = Hop::result,
                                 .site = EncodeSite::owner,
                                 .chunk = own,
                                 .inputs = std::move(inputs)});
    for (int distance = 1; distance < world; ++distance) {
      lane.instructions.push_back({.opcode = Opcode::send,
                                   .slot = slot,
                                   .peer = peer_after(shape, distance),
                                   .hop = Hop::result,
                                   .round = 1,
                                   .chunk = own});
    }
    lane.instructions.push_back(
        {.opcode = Opcode::decode, .slot = slot, .peer = shape.rank, .hop = Hop::result, .chunk = own});
  }
  for (int distance = 1; distance < world; ++distance) {
    const int peer = peer_after(shape, world - distance);
    const Slot slot = results[static_cast<std::size_t>(peer)];
    if (slot != kOwnInput) {
      lane.instructions.push_back({.opcode = Opcode::decode,
                                   .slot = slot,
                                   .peer = peer,
                                   .hop = Hop::result,
                                   .chunk = partition.chunk(peer, index)});
    }
  }
  return lane;
}

}  // namespace

Schedule all_reduce_two_shot(const Shape& shape, std::uint64_t count, const HopCodecs& codecs) {
  const Partition partition = Partition::even(count, shape.world_size, codecs, shape.chunk_bytes);
  Schedule schedule{"two_shot all-reduce", partition.lanes(),
                    [shape, partition, weights_first = weights_first(shape, codecs)](std::uint64_t index) {
                      return two_shot_lane(shape, partition, weights_first, index);
                    }};
  schedule.chunk_elements = partition.chunk_elements();
  return schedule;
}

}  // namespace gradwire::exchange
