// Tests that shards and chunks cover every element once, for any count, world and chunk size.
#include "exchange/partition.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "exchange/stream/stream_lane.hpp"
#include "kernels/device/frame_series.hpp"

namespace gradwire::exchange {
namespace {

using codec::kTileElements;

codec::Codec exact_f32() { return {CodecSpec::parse("exact"), DType::f32}; }

void expect_covers(const Partition& partition, int shards, std::uint64_t count) {
  std::uint64_t next = 0;
  for (int shard = 0; shard < shards; ++shard) {
    for (std::uint64_t lane = 0; lane < partition.lanes(); ++lane) {
      const Chunk chunk = partition.chunk(shard, lane);
      if (chunk.empty()) {
        continue;
      }
      EXPECT_EQ(chunk.first, next);
      next += chunk.count;
    }
  }
  EXPECT_EQ(next, count);
}

TEST(Partition, EvenShardsCoverEverythingAndDifferByATile) {
  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t count = random() % 2000000;
    const int world = 1 + static_cast<int>(random() % 9);
    const std::uint64_t chunk_bytes = 1ULL << (10 + random() % 12);
    const Partition partition = Partition::even(count, world, exact_f32(), chunk_bytes);
    expect_covers(partition, world, count);
    std::uint64_t least = ~0ULL;
    std::uint64_t most = 0;
    for (int shard = 0; shard < world; ++shard) {
      const std::uint64_t tiles = (partition.shard_count(shard) + kTileElements - 1) / kTileElements;
      least = std::min(least, tiles);
      most = std::max(most, tiles);
      for (std::uint64_t lane = 0; lane < partition.lanes(); ++lane) {
        if (const Chunk chunk = partition.chunk(shard, lane); !chunk.empty()) {
          EXPECT_EQ(chunk.first, chunk.first_tile * kTileElements);
        }
      }
    }
    EXPECT_LE(most - least, 1U);
    if (most >= 4) {
      EXPECT_GE(partition.lanes(), 4U);
    }
  }
}

TEST(Partition, ChunksOfAShardAreAlikeAndNoneIsMostlyHeader) {
  const auto lanes = [](const char* codec, std::uint64_t tiles, ChunkSize chunks) {
    const codec::Codec by{CodecSpec::parse(codec), DType::f32};
    const Partition partition = Partition::even(2 * tiles * kTileElements, 2, by, chunks);
    expect_covers(partition, 2, 2 * tiles * kTileElements);
    const std::uint64_t first = partition.chunk(0, 0).count;
    const std::uint64_t last = partition.chunk(0, partition.lanes() - 1).count;
    EXPECT_LT(first - last, partition.lanes() * kTileElements) << tiles << " tiles";
    return partition.lanes();
  };
  constexpr std::uint64_t kChunk = 56 << 10;
  EXPECT_EQ(lanes("int4", 14, kChunk), 5U) << "a tile has 2080 bytes";
  EXPECT_EQ(lanes("int2", 14, kChunk), 3U) << "a tile has 1056 bytes";
  EXPECT_EQ(lanes("topk(1%)+int2", 14, kChunk), 1U) << "all tiles have 840 bytes together";
  EXPECT_EQ(lanes("topk(1%)+int2", 1000, kChunk), 4U);
  EXPECT_EQ(lanes("topk(1%)+int2", 14, 1 << 10), 1U);
  EXPECT_EQ(lanes("int2", 14, 1 << 10), 14U) << "smaller chunks come only on request";
  EXPECT_EQ(lanes("int4", 14, ChunkSize::as_asked(kChunk)), 1U) << "as asked";
  EXPECT_EQ(lanes("int4", 100, ChunkSize::as_asked(kChunk)), 4U);
}

TEST(Partition, ASeriesHasTheChunksOfALane) {
  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int round = 0; round < 300; ++round) {
    const int world = 1 + static_cast<int>(random() % 9);
    const std::uint64_t chunk_bytes = 1ULL << (14 + random() % 8);
    const std::vector<std::uint64_t> segments(static_cast<std::size_t>(world), random() % 100000);
    const bool even = round % 2 == 0;
    const Partition partition = even ? Partition::even(random() % 2000000, world, exact_f32(), chunk_bytes)
                                     : Partition::segments(segments, exact_f32(), chunk_bytes);
    for (std::uint64_t lane = 0; lane < partition.lanes(); ++lane) {
      const auto series = partition.series(lane);
      ASSERT_TRUE(series);
      const kernels::FrameSeries frames = exchange::frame_series(*series, static_cast<std::uint32_t>(world));
      const kernels::FramePlace place{.count = partition.chunk(0, lane).count,  // no chunk is longer
                                      .first_tile = static_cast<std::uint32_t>(series->begin / codec::kTileElements)};
      for (int shard = 0; world > 1 && shard < world; ++shard) {
        const kernels::SeriesFrame frame = kernels::frame_of_series(place, frames, static_cast<std::uint32_t>(shard));
        const Chunk chunk = partition.chunk(shard, lane);
        EXPECT_EQ(frame.place.count, chunk.count) << "shard " << shard << ", lane " << lane;
        if (!chunk.empty()) {
          EXPECT_EQ((Chunk{frame.first, frame.place.count, frame.place.first_tile}), chunk)
              << "shard " << shard << ", lane " << lane;
          EXPECT_EQ(series->chunk(static_cast<std::uint64_t>(shard)), chunk);
        }
      }
    }
  }
  const std::vector<std::uint64_t> unequal{5000, 4999};
  EXPECT_FALSE(Partition::segments(unequal, exact_f32(), 1 << 20).series(0));
}

TEST(Partition, SegmentsRestartTiles) {
  const std::vector<std::uint64_t> counts{5000, 0, 1, 4096, 70000};
  const Partition partition = Partition::segments(counts, exact_f32(), 1 << 14);
  expect_covers(partition, 5, std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  EXPECT_EQ(partition.chunk(4, 0).first_tile, 0U);
  EXPECT_TRUE(partition.chunk(1, 0).empty());
}

TEST(Partition, MoreRanksThanTilesLeavesEmptyShards) {
  const Partition partition = Partition::even(4097, 8, exact_f32(), 1 << 18);
  EXPECT_EQ(partition.shard_count(0), 4096U);
  EXPECT_EQ(partition.shard_count(1), 1U);
  EXPECT_EQ(partition.shard_count(2), 0U);
  EXPECT_EQ(partition.lanes(), 1U);
}

TEST(Partition, CountsAboveTwoToThe32) {
  const std::uint64_t count = (1ULL << 33) + 12345;
  const Partition partition = Partition::even(count, 3, exact_f32(), 1ULL << 40);
  std::uint64_t total = 0;
  for (int shard = 0; shard < 3; ++shard) {
    for (std::uint64_t lane = 0; lane < partition.lanes(); ++lane) {
      total += partition.chunk(shard, lane).count;
    }
  }
  EXPECT_EQ(total, count);
}

}  // namespace
}  // namespace gradwire::exchange
