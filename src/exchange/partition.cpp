#include "exchange/partition.hpp"

#include <algorithm>
#include <functional>

namespace gradwire::exchange {
namespace {

using codec::kTileElements;

constexpr std::uint64_t kLeastBytes = 6 << 10;  // of a chunk, about: smaller lanes cost more than their overlap gains
constexpr std::uint64_t kMaxTilesPerChunk = (1ULL << 31) / kTileElements;  // a frame's count is 32 bits

std::uint64_t tiles_of(std::uint64_t count) { return (count + kTileElements - 1) / kTileElements; }

}  // namespace

Partition Partition::even(std::uint64_t count, int shards, const HopCodecs& codecs, ChunkSize chunks) {
  const std::uint64_t tiles = tiles_of(count);
  const auto parts = static_cast<std::uint64_t>(shards);
  Partition partition;
  std::uint64_t tile = 0;
  for (std::uint64_t shard = 0; shard < parts; ++shard) {
    const std::uint64_t end = tile + tiles / parts + (shard < tiles % parts ? 1 : 0);
    const std::uint64_t first = std::min(count, tile * kTileElements);
    partition.shards_.push_back({first, std::min(count, end * kTileElements) - first, tile});
    tile = end;
  }
  partition.first_series_ = ChunkSeries{.each = tiles / parts * kTileElements,
                                        .longer = static_cast<std::uint32_t>(tiles % parts),
                                        .tiles = static_cast<std::uint32_t>(tiles / parts),
                                        .end = count};
  partition.set_chunks(codecs, chunks);
  return partition;
}

Partition Partition::segments(std::span<const std::uint64_t> counts, const HopCodecs& codecs, ChunkSize chunks) {
  Partition partition;
  std::uint64_t first = 0;
  for (const std::uint64_t count : counts) {
    partition.shards_.push_back({first, count, 0});
    first += count;
  }
  if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end() && !counts.empty()) {
    partition.first_series_ = ChunkSeries{.each = counts[0], .end = first};
  }
  partition.set_chunks(codecs, chunks);
  return partition;
}

void Partition::set_chunks(const HopCodecs& codecs, ChunkSize chunks) {
  std::uint64_t most = 0;
  for (const Shard& shard : shards_) {
    most = std::max(most, tiles_of(shard.count));
  }
  const std::uint64_t wanted = chunks.bytes / codecs.tile_bytes();
  const std::uint64_t least = (kLeastBytes + codecs.tile_bytes() - 1) / codecs.tile_bytes();
  const std::uint64_t fitting = std::max(least, most / chunks.per_shard);
  const std::uint64_t bound = std::clamp<std::uint64_t>(fitting, 1, kMaxTilesPerChunk);
  const std::uint64_t largest = std::clamp<std::uint64_t>(wanted, 1, bound);
  lanes_ = (most + largest - 1) / largest;
  tiles_per_chunk_ = lanes_ == 0 ? largest : (most + lanes_ - 1) / lanes_;  // makes chunks as equal as possible
}

Chunk ChunkSeries::chunk(std::uint64_t shard) const noexcept {
  const auto first_of = [&](std::uint64_t number) {
    return std::min(end, number * each + std::min<std::uint64_t>(number, longer) * kTileElements);
  };
  const std::uint64_t first = first_of(shard) + begin;
  const std::uint64_t past = shard == last ? end : first_of(shard + 1);
  if (first >= past) {
    return {};
  }
  const std::uint64_t first_tile = shard * tiles + std::min<std::uint64_t>(shard, longer);
  return {base + first, static_cast<std::uint32_t>(std::min(most, past - first)),
          static_cast<std::uint32_t>(base_tile + first_tile + begin / kTileElements)};
}

std::optional<ChunkSeries> Partition::series(std::uint64_t lane) const {
  std::optional<ChunkSeries> series = first_series_;
  if (series) {
    series->most = tiles_per_chunk_ * kTileElements;
    series->begin = lane * series->most;
  }
  return series;
}

Chunk Partition::chunk(int shard, std::uint64_t lane) const {
  const Shard& whole = shards_[static_cast<std::size_t>(shard)];
  const std::uint64_t elements = tiles_per_chunk_ * kTileElements;
  const std::uint64_t offset = lane * elements;
  if (offset >= whole.count) {
    return {};
  }
  return {whole.first + offset, static_cast<std::uint32_t>(std::min(elements, whole.count - offset)),
          static_cast<std::uint32_t>(whole.first_tile + lane * tiles_per_chunk_)};
}

}  // namespace gradwire::exchange
