// hierarchical: first the ranks of a node exchange their parts, encoded by the first codec. A rank adds up its node's
// parts of each shard whose owner has the same place on another node, and sends the encoded sum to that owner. The
// owner adds the sums of all nodes and encodes once; two hops carry the same bytes to everyone: to the ranks of its
// place on other nodes, and from there to their neighbours. Between nodes an element travels (N-1)/N times in each
// direction, whatever the number of ranks in a node, and all ranks carry their share. Lane i carries chunk i of every
// shard; rank r owns shard r, as in two_shot.
#include <algorithm>
#include <vector>

#include "exchange/collectives.hpp"

namespace gradwire::exchange {
namespace {

using codec::EncodeSite;

class LaneMaker {
 public:
  LaneMaker(const Shape& shape, const Partition& partition, std::uint64_t index)
      : shape_(shape),
        tiers_(*shape.tiers),
        partition_(partition),
        index_(index),
        node_(tiers_.node_of(shape.rank)),
        place_(tiers_.place_of(shape.rank)),
        ranks_(static_cast<int>(tiers_.members(node_).size())),
        own_(partition.chunk(shape.rank, index)) {}

  Lane make(bool weights_first) {
    receive();
    if (weights_first) {
      add_weight_exchange(lane_, index_, shape_, kBeforeFirst);
    }
    exchange_inside();
    if (!weights_first) {
      add_weight_exchange(lane_, index_, shape_, kBesideFirst);
    }
    send_node_sums();
    reduce_own();
    pass_on();
    return std::move(lane_);
  }

 private:
  // Each rank begins with another peer, so that not all send to the same one first. Of the shards of this rank's place
  // those of other nodes come first, since their sums have farther to go.
  [[nodiscard]] int nodes() const { return tiers_.nodes(); }
  [[nodiscard]] int rank_at(int node, int place) const { return tiers_.members(node)[static_cast<std::size_t>(place)]; }
  [[nodiscard]] int node_after(int distance) const { return (node_ + distance) % nodes(); }
  [[nodiscard]] int place_after(int distance) const { return (place_ + distance) % ranks_; }
  [[nodiscard]] int neighbour(int distance) const { return rank_at(node_, place_after(distance)); }
  [[nodiscard]] int counterpart(int distance) const { return rank_at(node_after(distance), place_); }
  [[nodiscard]] Chunk chunk_of(int rank) const { return partition_.chunk(rank, index_); }

  // Only devices group messages into rounds (Instruction::round), and none of them runs this schedule.
  void send(Slot slot, int peer, Hop hop, const Chunk& chunk) {
    lane_.instructions.push_back({.opcode = Opcode::send, .slot = slot, .peer = peer, .hop = hop, .chunk = chunk});
  }
  Slot receive(int peer, Hop hop, const Chunk& chunk) {
    if (chunk.empty()) {
      return kOwnInput;
    }
    const Slot slot = lane_.add_slot();
    lane_.instructions.push_back({.opcode = Opcode::receive, .slot = slot, .peer = peer, .hop = hop, .chunk = chunk});
    return slot;
  }

  // Every pair of ranks sends its frames of one hop in the order in which this function awaits them.
  void receive() {
    const auto all = static_cast<std::size_t>(nodes());
    parts_.assign(all, std::vector<Slot>(static_cast<std::size_t>(ranks_), kOwnInput));
    sums_.assign(all, kOwnInput);
    results_.assign(static_cast<std::size_t>(shape_.world_size), kOwnInput);
    for (int other = 1; other < ranks_; ++other) {
      const int place = place_after(ranks_ - other);
      for (int distance = 1; distance <= nodes(); ++distance) {
        parts_[static_cast<std::size_t>(node_after(distance))][static_cast<std::size_t>(place)] =
            receive(rank_at(node_, place), Hop::own, chunk_of(counterpart(distance)));
      }
    }
    for (int distance = 1; distance < nodes(); ++distance) {
      const int peer = counterpart(nodes() - distance);
      sums_[static_cast<std::size_t>(tiers_.node_of(peer))] = receive(peer, Hop::node, own_);
      results_[static_cast<std::size_t>(peer)] = receive(peer, Hop::result, chunk_of(peer));
    }
    for (int other = 1; other < ranks_; ++other) {
      const int place = place_after(ranks_ - other);
      for (int distance = 0; distance < nodes(); ++distance) {  // the order in which pass_on() sends them
        const int owner = rank_at(node_after(nodes() - distance), place);
        results_[static_cast<std::size_t>(owner)] = receive(rank_at(node_, place), Hop::result, chunk_of(owner));
      }
    }
  }

  void exchange_inside() {
    for (int distance = 1; distance <= nodes(); ++distance) {
      for (int other = 1; other < ranks_; ++other) {
        const Chunk theirs = chunk_of(rank_at(node_after(distance), place_after(other)));
        if (theirs.empty()) {
          continue;
        }
        const Slot slot = lane_.add_slot();
        lane_.instructions.push_back(
            {.opcode = Opcode::encode, .slot = slot, .hop = Hop::own, .site = EncodeSite::local, .chunk = theirs});
        send(slot, neighbour(other), Hop::own, theirs);
      }
    }
  }

  void send_node_sums() {
    for (int distance = 1; distance < nodes(); ++distance) {
      const int owner = counterpart(distance);
      const Chunk theirs = chunk_of(owner);
      if (theirs.empty()) {
        continue;
      }
      const Slot slot = lane_.add_slot();
      lane_.instructions.push_back({.opcode = Opcode::reduce_encode,
                                    .slot = slot,
                                    .hop = Hop::node,
                                    .site = EncodeSite::intra,
                                    .chunk = theirs,
                                    .inputs = parts_[static_cast<std::size_t>(node_after(distance))]});
      send(slot, owner, Hop::node, theirs);
    }
  }

  // Adds the nodes in their order, and for this rank's own node its ranks in their order.
  void reduce_own() {
    if (own_.empty()) {
      return;
    }
    std::vector<Slot> inputs;
    for (int node = 0; node < nodes(); ++node) {
      if (node == node_) {
        const std::vector<Slot>& ranks = parts_[static_cast<std::size_t>(node)];
        inputs.insert(inputs.end(), ranks.begin(), ranks.end());
      } else {
        inputs.push_back(sums_[static_cast<std::size_t>(node)]);
      }
    }
    const Slot slot = lane_.add_slot();
    lane_.instructions.push_back({.opcode = Opcode::reduce_encode,
                                  .slot = slot,
                                  .hop = Hop::result,
                                  .site = EncodeSite::owner,
                                  .chunk = own_,
                                  .inputs = std::move(inputs)});
    for (int distance = 1; distance < nodes(); ++distance) {
      send(slot, counterpart(distance), Hop::result, own_);
    }
    spread(slot, shape_.rank);
  }

  // Sends a result to the rest of the node as it arrived, then decodes it here too.
  void spread(Slot slot, int owner) {
    const Chunk chunk = chunk_of(owner);
    for (int other = 1; other < ranks_; ++other) {
      send(slot, neighbour(other), Hop::result, chunk);
    }
    decode(slot, owner, chunk);
  }

  void decode(Slot slot, int from, const Chunk& chunk) {
    lane_.instructions.push_back(
        {.opcode = Opcode::decode, .slot = slot, .peer = from, .hop = Hop::result, .chunk = chunk});
  }

  void pass_on() {
    for (int distance = 1; distance < nodes(); ++distance) {
      const int owner = counterpart(nodes() - distance);
      if (const Slot slot = results_[static_cast<std::size_t>(owner)]; slot != kOwnInput) {
        spread(slot, owner);
      }
    }
    for (int other = 1; other < ranks_; ++other) {
      const int place = place_after(ranks_ - other);
      for (int distance = 0; distance < nodes(); ++distance) {
        const int owner = rank_at(node_after(nodes() - distance), place);
        if (const Slot slot = results_[static_cast<std::size_t>(owner)]; slot != kOwnInput) {
          decode(slot, rank_at(node_, place), chunk_of(owner));
        }
      }
    }
  }

  const Shape& shape_;
  const Tiers& tiers_;
  const Partition& partition_;
  std::uint64_t index_;
  int node_;
  int place_;
  int ranks_;  // number of ranks of a node
  Chunk own_;
  Lane lane_;
  std::vector<std::vector<Slot>> parts_;  // by node and place: a neighbour's part of that node's shard of this place
  std::vector<Slot> sums_;                // by node: its sum of this rank's shard
  std::vector<Slot> results_;             // by owner
};

}  // namespace

Schedule all_reduce_hierarchical(const Shape& shape, std::uint64_t count, const HopCodecs& codecs) {
  if (shape.tiers == nullptr || !shape.tiers->why_not_hierarchical().empty()) {
    return all_reduce_two_shot(shape, count, codecs);
  }
  const Partition partition = Partition::even(count, shape.world_size, codecs, shape.chunk_bytes);
  return {"hierarchical all-reduce", partition.lanes(),
          [shape, partition, weights_first = weights_first(shape, codecs)](std::uint64_t index) {
            return LaneMaker(shape, partition, index).make(weights_first);
          }};
}

}  // namespace gradwire::exchange
