// Splits a sequence of elements over ranks and into chunks: a pure function, with the same result on every rank.
#pragma once

#include <cstdint>
#include <optional>
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
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// The least number of chunks of a shard over hosts: a small shard is cut into smaller chunks, so that they overlap on
/// their way.
inline constexpr std::uint64_t kHostChunksPerShard = 4;

/// The size of a chunk on the wire, and the least number of chunks of a shard, which is the executor's: each chunk
/// costs a device several launches, so there one is enough.
struct ChunkSize {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of bytes reads as a size
  ChunkSize(std::uint64_t of_bytes) : bytes(of_bytes) {}
  /// Takes the size as it was asked for: a shard that fits is one chunk.
  [[nodiscard]] static ChunkSize as_asked(std::uint64_t bytes) {
    ChunkSize size(bytes);
    size.per_shard = 1;
    size.asked = true;
    return size;
  }
  /// Takes the size that was asked for, or else one that fits.
  [[nodiscard]] static ChunkSize asked_or(std::optional<std::uint64_t> asked, std::uint64_t fitting) {
    return asked ? as_asked(*asked) : ChunkSize(fitting);
  }
  std::uint64_t bytes;
  std::uint64_t per_shard = kHostChunksPerShard;
  bool asked = false;  // nothing but the size decides how many chunks there are
};

/// The chunks of one lane as a formula, so that a device's kernel finds them without a table. Chunk s begins `begin`
/// elements into shard s, and ends with its shard, or `most` elements later.
struct ChunkSeries {
  std::uint64_t each = 0;    // elements of a shard
  std::uint32_t longer = 0;  // so many shards, the first ones, have a tile more
  std::uint32_t tiles = 0;   // by which headers count on from a shard to the next; 0: tiles start anew in each
  std::uint64_t begin = 0;
  std::uint64_t most = 0;
  std::uint64_t end = 0;                   // elements of the bucket, or of the run of it that these shards share
  std::uint64_t last = ~std::uint64_t{0};  // the shard, if any, that has all elements up to `end`
  // Where the run begins: an element of the bucket, and the number of its tile in headers.
  std::uint64_t base = 0;
  std::uint32_t base_tile = 0;

  [[nodiscard]] Chunk chunk(std::uint64_t shard) const noexcept;
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
  /// Most elements of a chunk.
  [[nodiscard]] std::uint64_t chunk_elements() const noexcept { return tiles_per_chunk_ * codec::kTileElements; }
  /// The lane-th chunk of a shard; empty past its end.
  [[nodiscard]] Chunk chunk(int shard, std::uint64_t lane) const;
  /// All chunks of a lane; none where no formula gives them, as for segments of different sizes.
  [[nodiscard]] std::optional<ChunkSeries> series(std::uint64_t lane) const;
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
  std::optional<ChunkSeries> first_series_;  // of lane 0
  std::uint64_t tiles_per_chunk_ = 1;
  std::uint64_t lanes_ = 0;
};

}  // namespace gradwire::exchange
