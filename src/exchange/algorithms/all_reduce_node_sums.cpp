// hierarchical where a library sums inside nodes, as NCCL does: a reduce-scatter leaves each rank of a node the node's
// sum of its part of the lane. It encodes this sum once for the ranks of its place on other nodes, each of which owns a
// shard of the part. The owner adds the sums of all nodes, in the order of nodes, its own node's uncoded, and encodes
// once; the ranks of its place get that frame. An all-gather of frames brings all of them to every rank of the node,
// and everyone decodes the same bytes. Between nodes an element travels as in all_reduce_hierarchical.cpp. Rounds of
// communication: the reduce-scatter, sums, results, the all-gather.
#include <vector>

#include "exchange/collectives.hpp"
#include "exchange/tier_partition.hpp"

namespace gradwire::exchange {
namespace {

using codec::EncodeSite;

enum Round : int { kScatter, kSums, kResults, kGather };

class NodeLaneMaker {
 public:
  NodeLaneMaker(const Shape& shape, const TierPartition& partition, std::uint64_t index)
      : shape_(shape),
        tiers_(*shape.tiers),
        partition_(partition),
        index_(index),
        node_(tiers_.node_of(shape.rank)),
        place_(tiers_.place_of(shape.rank)),
        part_(partition.shards_of(place_, index)) {}

  Lane make(bool weights_first) {
    lane_.series = partition_.shards(index_);
    lane_.node = NodePart{.part = partition_.part(place_, index_),
                          .each = partition_.each(index_),
                          .rest = partition_.rest(index_),
                          .ranks = static_cast<std::uint64_t>(tiers_.members(0).size()),
                          .shards = part_,
                          .own = static_cast<std::uint64_t>(node_),
                          .before = partition_.before(index_),
                          .sum = lane_.add_slot()};
    for (std::uint64_t shard = 0; shard < static_cast<std::uint64_t>(shape_.world_size); ++shard) {
      results_.push_back(lane_.add_slot());
    }
    receive();
    add_weight_exchange(lane_, index_, shape_, weights_first ? kBeforeFirst : static_cast<int>(kSums));
    sum_inside();
    send_sums();
    send_result();
    gather();
    return std::move(lane_);
  }

 private:
  [[nodiscard]] int node_after(int distance) const { return (node_ + distance) % tiers_.nodes(); }
  [[nodiscard]] int peer_on(int node) const { return tiers_.members(node)[static_cast<std::size_t>(place_)]; }
  [[nodiscard]] Chunk chunk_of(int node) const { return part_.chunk(static_cast<std::uint64_t>(node)); }
  /// The slot of the result that the rank of this place on a node owns.
  [[nodiscard]] Slot result_of(int node) const {
    return results_[static_cast<std::size_t>(place_) * static_cast<std::size_t>(tiers_.nodes()) +
                    static_cast<std::size_t>(node)];
  }

  void message(Opcode opcode, Slot slot, int node, Hop hop, Round round, const Chunk& chunk) {
    lane_.instructions.push_back(
        {.opcode = opcode, .slot = slot, .peer = peer_on(node), .hop = hop, .round = round, .chunk = chunk});
  }

  void receive() {
    sums_.assign(static_cast<std::size_t>(tiers_.nodes()), lane_.node->sum);
    for (int distance = 1; distance < tiers_.nodes(); ++distance) {
      const int node = node_after(tiers_.nodes() - distance);
      const Slot slot = sums_[static_cast<std::size_t>(node)] = lane_.add_slot();
      message(Opcode::receive, slot, node, Hop::own, kSums, chunk_of(node_));
      message(Opcode::receive, result_of(node), node, Hop::result, kResults, chunk_of(node));
    }
  }

  void sum_inside() {
    const Slot input = lane_.add_slot();
    const Chunk part = lane_.node->part;
    lane_.instructions.push_back({.opcode = Opcode::node_load, .slot = input, .chunk = partition_.whole(index_)});
    lane_.instructions.push_back(
        {.opcode = Opcode::node_sum, .slot = lane_.node->sum, .round = kScatter, .chunk = part, .inputs = {input}});
    lane_.instructions.push_back({.opcode = Opcode::node_fold, .slot = lane_.node->sum, .chunk = part});
  }

  void send_sums() {
    for (int distance = 1; distance < tiers_.nodes(); ++distance) {
      const int node = node_after(distance);
      const Slot slot = lane_.add_slot();
      lane_.instructions.push_back({.opcode = Opcode::encode,
                                    .slot = slot,
                                    .hop = Hop::own,
                                    .site = EncodeSite::intra,
                                    .chunk = chunk_of(node),
                                    .inputs = {lane_.node->sum}});
      message(Opcode::send, slot, node, Hop::own, kSums, chunk_of(node));
    }
  }

  void send_result() {
    lane_.instructions.push_back({.opcode = Opcode::reduce_encode,
                                  .slot = result_of(node_),
                                  .hop = Hop::result,
                                  .site = EncodeSite::owner,
                                  .chunk = chunk_of(node_),
                                  .inputs = sums_});
    for (int distance = 1; distance < tiers_.nodes(); ++distance) {
      message(Opcode::send, result_of(node_), node_after(distance), Hop::result, kResults, chunk_of(node_));
    }
  }

  void gather() {
    lane_.instructions.push_back(
        {.opcode = Opcode::node_gather, .hop = Hop::result, .round = kGather, .inputs = results_});
    for (std::uint64_t shard = 0; shard < results_.size(); ++shard) {
      lane_.instructions.push_back(
          {.opcode = Opcode::decode, .slot = results_[shard], .hop = Hop::result, .chunk = lane_.series->chunk(shard)});
    }
  }

  const Shape& shape_;
  const Tiers& tiers_;
  const TierPartition& partition_;
  std::uint64_t index_;
  int node_;
  int place_;
  ChunkSeries part_;  // the chunks of this rank's place, by node
  Lane lane_;
  std::vector<Slot> sums_;     // by node: its sum of this rank's shard
  std::vector<Slot> results_;  // by shard
};

}  // namespace

Schedule all_reduce_node_sums(const Shape& shape, std::uint64_t count, const HopCodecs& codecs) {
  const TierPartition partition(count, *shape.tiers, shape.chunk_bytes);
  return {"hierarchical all-reduce", partition.lanes(),
          [shape, partition, weights_first = weights_first(shape, codecs)](std::uint64_t index) {
            return NodeLaneMaker(shape, partition, index).make(weights_first);
          }};
}

}  // namespace gradwire::exchange
