// Splits a sequence of elements over ranks and into chunks: a pure function, with the same result on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec.hpp"
#include "exchange/hop_codecs.hpp"

namespace gradwire::exchange {

/// Elements that travel together in one frame. Empty: no frame.
struct Chunk {
  std::uint64_t first = 0;  // its first element in the bucket
  std::uint32_t count = 0;
  std::uint32_t first_tile = 0;

  [[nodiscard]] bool empty() const noexcept { return count == 0; }
};

/// The size of a chunk on the wire.
struct ChunkSize {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of bytes reads as a size
  ChunkSize(std::uint64_t of_bytes, bool whoever_asked = false) : bytes(of_bytes), as_asked(whoever_asked) {}
  std::uint64_t bytes;
  bool as_asked;  // false: a small shard is cut into smaller chunks, so that they overlap on their way
};

class Partition {
 public:
  /// Splits the tiles evenly over `shards`; sizes differ by at most one tile, and the first shards get more.
  [[nodiscard]] static Partition even(std::uint64_t count, int shards, const HopCodecs& codecs, ChunkSize chunks);
  /// Makes the given segments the shards, in order; tiles start anew in each.
  [[nodiscard]] static Partition segments(std::span<const std::uint64_t> counts, const HopCodecs& codecs,
                                          ChunkSize chunks);

  /// The number of chunks of the largest shard.
  [[nodiscard]] std::uint64_t lanes() const noexcept { return lanes_; }
  /// The lane-th chunk of a shard; empty past its end.
  [[nodiscard]] Chunk chunk(int shard, std::uint64_t lane) const;
  [[nodiscard]] std::uint64_t shard_first(int shard) const { return shards_[static_cast<std::size_t>(shard)].first; }
  [[nodiscard]] std::uint64_t shard_count(int shard) const { return shards_[static_cast<std::size_t>(shard)].count; }

 private:
  struct Shard {
    std::uint64_t first;
    std::uint64_t count;
    std::uint64_t first_tile;
  };
  void set_chunks(const HopCodecs& codecs, ChunkSize chunks);

  std::vector<Shard> shards_;
  std::uint64_t tiles_per_chunk_ = 1;
  std::uint64_t lanes_ = 0;
};

}  // namespace gradwire::exchange
