// Splits a bucket over the ranks of nodes where a library sums inside nodes: each lane is a run of the bucket, which
// the places of a node share in their order; a place's part is shared by its ranks on all nodes, in the order of nodes.
// So a node's parts are of equal size and lie beside each other, as a reduce-scatter needs them, and so do the frames
// of a place for an all-gather. It is a pure function, with the same result on every rank, and knows no codec:
// residuals belong to the rank that sums an element, also where the codec changes.
#pragma once

#include <cstdint>

#include "exchange/partition.hpp"
#include "exchange/tiers.hpp"

namespace gradwire::exchange {

class TierPartition {
 public:
  /// Every shard has a multiple of so many elements, which keeps it aligned; the last one of a bucket has the rest,
  /// too.
  static constexpr std::uint64_t kUnit = 64;
  /// Whether every shard of a bucket has elements.
  [[nodiscard]] static bool fits(std::uint64_t count, int world_size) noexcept {
    return count >= static_cast<std::uint64_t>(world_size) * kUnit;
  }

  /// A bucket of so many elements has at least two lanes, or three, unless the size of chunks was asked for. The sum
  /// inside the node of one lane then runs beside the messages of the lane before it. Each lane costs four latencies
  /// more, so a smaller bucket is faster in fewer lanes, and one of any size in three rather than in four.
  static constexpr std::uint64_t kTwoLanes = 16ULL << 20;
  static constexpr std::uint64_t kThreeLanes = 48ULL << 20;

  /// Needs a bucket that fits, and nodes of one size. A shard of a lane has at most as many elements as `chunks` has
  /// bytes.
  TierPartition(std::uint64_t count, const Tiers& tiers, ChunkSize chunks);

  [[nodiscard]] std::uint64_t lanes() const noexcept { return lanes_; }
  /// The elements of a lane.
  [[nodiscard]] Chunk whole(std::uint64_t lane) const;
  /// The chunks of all shards: number `place * nodes + node` is that of the rank there.
  [[nodiscard]] ChunkSeries shards(std::uint64_t lane) const;
  /// The chunks of a place's shards, by node; the part of the place begins with the first and ends with the last one.
  [[nodiscard]] ChunkSeries shards_of(int place, std::uint64_t lane) const;
  [[nodiscard]] Chunk part(int place, std::uint64_t lane) const;
  /// Elements of a part; that of the last place has `rest` more.
  [[nodiscard]] std::uint64_t each(std::uint64_t lane) const { return nodes_ * shard(lane); }
  [[nodiscard]] std::uint64_t rest(std::uint64_t lane) const { return lane + 1 == lanes_ ? rest_ : 0; }
  /// Elements of a place's parts in the lanes before this one.
  [[nodiscard]] std::uint64_t before(std::uint64_t lane) const { return nodes_ * kUnit * units_before(lane); }

 private:
  [[nodiscard]] std::uint64_t units_before(std::uint64_t lane) const { return units_ * lane / lanes_; }
  // Elements of every shard but the last one.
  [[nodiscard]] std::uint64_t shard(std::uint64_t lane) const {
    return kUnit * (units_before(lane + 1) - units_before(lane));
  }

  std::uint64_t nodes_;
  std::uint64_t places_;
  std::uint64_t units_;  // of kUnit elements that each shard of the bucket has
  std::uint64_t rest_;
  std::uint64_t lanes_ = 1;
  std::uint32_t tiles_ = 1;  // by which headers count on from a shard to the next
};

}  // namespace gradwire::exchange
