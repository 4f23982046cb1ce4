#include "exchange/tier_partition.hpp"

#include <algorithm>

namespace gradwire::exchange {
namespace {

using codec::kTileElements;

// Numbers of kernels have 32 bits, also the bytes of a lane of f64.
constexpr std::uint64_t kMostLaneElements = 1ULL << 27;

}  // namespace

TierPartition::TierPartition(std::uint64_t count, const Tiers& tiers, ChunkSize chunks)
    : nodes_(static_cast<std::uint64_t>(tiers.nodes())), places_(tiers.members(0).size()) {
  const std::uint64_t world = nodes_ * places_;
  units_ = count / (world * kUnit);
  rest_ = count - units_ * world * kUnit;
  const std::uint64_t most = std::max<std::uint64_t>(kMostLaneElements / world / kUnit, 1);
  const std::uint64_t largest = std::clamp<std::uint64_t>(chunks.bytes / kUnit, 1, most);
  const std::uint64_t least = chunks.asked || count < kTwoLanes ? 1 : count < kThreeLanes ? 2 : 3;
  lanes_ = std::max(least, (units_ + largest - 1) / largest);
  const std::uint64_t longest = (units_ + lanes_ - 1) / lanes_ * kUnit + rest_;
  tiles_ = static_cast<std::uint32_t>((longest + kTileElements - 1) / kTileElements);
}

ChunkSeries TierPartition::shards(std::uint64_t lane) const {
  const std::uint64_t world = nodes_ * places_;
  return {.each = shard(lane),
          .longer = 0,
          .tiles = tiles_,
          .begin = 0,
          .most = shard(lane) + rest(lane),
          .end = world * shard(lane) + rest(lane),
          .last = world - 1,
          .base = world * kUnit * units_before(lane),
          .base_tile = static_cast<std::uint32_t>(lane * world * tiles_)};
}

ChunkSeries TierPartition::shards_of(int place, std::uint64_t lane) const {
  const auto first = static_cast<std::uint64_t>(place) * nodes_;
  ChunkSeries shards = this->shards(lane);
  shards.base += first * shards.each;
  shards.base_tile += static_cast<std::uint32_t>(first) * tiles_;
  shards.end = part(place, lane).count;
  shards.last = nodes_ - 1;
  return shards;
}

Chunk TierPartition::whole(std::uint64_t lane) const {
  const ChunkSeries all = shards(lane);
  return {all.base, static_cast<std::uint32_t>(all.end), all.base_tile};
}

Chunk TierPartition::part(int place, std::uint64_t lane) const {
  const ChunkSeries all = shards(lane);
  const auto at = static_cast<std::uint64_t>(place);
  const std::uint64_t count = each(lane) + (at + 1 == places_ ? rest(lane) : 0);
  return {all.base + at * each(lane), static_cast<std::uint32_t>(count),
          all.base_tile + static_cast<std::uint32_t>(at * nodes_) * tiles_};
}

}  // namespace gradwire::exchange
