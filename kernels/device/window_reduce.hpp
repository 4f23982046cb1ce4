// An all-reduce inside a node by one kernel on each rank, over windows (kernels/device/window_job.hpp): encode into the
// windows of the owners, meet, sum and encode as the owner into all windows, meet, decode. Tiles, frames, sums and
// residuals are those of the separate kernels, and so are all bytes.
//
// The same block has a tile in all steps and on all ranks, so that blocks wait only for blocks of their own number:
// tile t of shard s belongs to block (s x tiles of a chunk + t) % blocks. Input and output may therefore be the same.
// A frame has a header for each block, written by that block, with the flag for its own tiles.
#ifndef GRADWIRE_KERNELS_DEVICE_WINDOW_REDUCE_HPP
#define GRADWIRE_KERNELS_DEVICE_WINDOW_REDUCE_HPP

#include "kernels/device/reduce.hpp"
#include "kernels/device/window_meet.hpp"

namespace gradwire::kernels {

/// The same job over pieces.
using WindowPiecesJob = WindowJobOf<InPieces<EncodeJob>, InPieces<ReduceJob>, InPieces<DecodeJob>>;

/// The job as the tile functions need it.
template <class Job>
struct WindowTiles {
  const Job& job;

  [[nodiscard]] GRADWIRE_DEVICE std::uint32_t own() const { return job.places.shape.rank; }
  /// It is read where it is needed, since registers are few.
  [[nodiscard]] GRADWIRE_DEVICE std::uint32_t step() const { return step_of(job.encode.call); }
  [[nodiscard]] GRADWIRE_DEVICE SeriesFrame chunk(std::uint32_t shard) const {
    return frame_of_series(job.encode.frame, job.encode.series, shard);
  }
  /// The first tile of this block in a chunk of the shard.
  [[nodiscard]] GRADWIRE_DEVICE std::uint32_t first_tile(std::uint32_t shard) const {
    const std::uint32_t blocks = job.places.shape.blocks;
    const std::uint32_t before = shard * tiles_of(job.encode.frame.count) % blocks;
    return simt::block() >= before ? simt::block() - before : simt::block() + blocks - before;
  }
  [[nodiscard]] GRADWIRE_DEVICE TilePlace place(const SeriesFrame& chunk, std::uint32_t tile) const {
    return tile_place(job.encode.call, 0, step(), SeriesTile{chunk, tile});
  }
};

GRADWIRE_DEVICE std::uint32_t full_tiles(const SeriesFrame& chunk) { return chunk.place.count / kTileElements; }

/// Whether the tile is the last one of its chunk, with fewer elements than the others.
GRADWIRE_DEVICE bool is_short(const SeriesFrame& chunk, std::uint32_t tile) {
  return tile == full_tiles(chunk) && chunk.place.count % kTileElements != 0;
}

template <class Codec>
GRADWIRE_DEVICE std::uint64_t window_offset(std::uint32_t tile) {
  return std::uint64_t{tile} * Codec::Core::tile_bytes(0, kTileElements);
}

/// The frames of this rank's blocks that an owner sums.
struct SlotInputs {
  const std::uint8_t* first;
  std::uint32_t slot_bytes;
  int frames;
  int own;
  [[nodiscard]] GRADWIRE_DEVICE const std::uint8_t* at(int i, std::uint32_t offset = 0) const {
    return first + (slot_bytes * static_cast<std::uint32_t>(i >= own ? i + 1 : i) + offset);
  }
};

/// Encodes this block's tiles of all other shards into the windows of their owners.
template <class Codec, class Job>
GRADWIRE_DEVICE void encode_parts(const WindowTiles<Job>& tiles, Meetings& meetings, typename Codec::Shared& shared) {
  const Job& job = tiles.job;
  const WindowShape& shape = job.places.shape;
  GRADWIRE_ROLLED
  for (std::uint32_t distance = 1; distance < shape.ranks; ++distance) {
    const std::uint32_t shard = rank_after(shape, distance);
    const SeriesFrame chunk = tiles.chunk(shard);
    std::uint8_t* slot = frame_bytes(job.places.window[shard] + slot_at(shape, 0, tiles.own()));
    const auto note = [&] {
      simt::atomic_or(&meetings.nonfinite[0], 1U << shard);
      report_nonfinite(job.encode.call);
    };
    std::uint32_t tile = tiles.first_tile(shard);
    GRADWIRE_ROLLED
    for (; tile < full_tiles(chunk); tile += shape.blocks) {
      encode_tile<Codec>(job.encode, full(tiles.place(chunk, tile)), slot + window_offset<Codec>(tile), shared, note);
    }
    if (is_short(chunk, tile)) {
      encode_tile<Codec>(job.encode, tiles.place(chunk, tile), slot + window_offset<Codec>(tile), shared, note);
    }
  }
}

/// Copies a tile of the own result into all other windows; called by the whole block behind a barrier.
GRADWIRE_DEVICE void push_tile(const WindowPlaces& places, std::uint64_t offset, std::uint32_t bytes) {
  const WindowShape& shape = places.shape;
  for (std::uint32_t at = 16 * simt::thread(); at < bytes; at += 16 * simt::kThreads) {
    const std::uint64_t to = slot_at(shape, 1, shape.rank) + offset + at;
    const simt::Words4 words = simt::load16(places.window[shape.rank] + to);
    for (std::uint32_t distance = 1; distance < shape.ranks; ++distance) {
      simt::store16(places.window[rank_after(shape, distance)] + to, words);
    }
  }
}

/// Whether the parts of all ranks have come to the owner as expected.
GRADWIRE_DEVICE bool all_good(const WindowShape& shape, const Meetings& meetings) {
  return meetings.good[0] == (shape.ranks == kMostWindowRanks ? ~0U : (1U << shape.ranks) - 1);
}

/// Sums and encodes this block's tiles of the own shard, for all windows.
template <class Codec, class Job>
GRADWIRE_DEVICE void sum_own(const WindowTiles<Job>& tiles, Meetings& meetings, typename Codec::Shared& shared) {
  using Value = typename Codec::Value;
  const Job& job = tiles.job;
  using Sum = TileSum<Codec, SlotInputs, decltype(Job::reduce)>;
  const WindowShape& shape = job.places.shape;
  const SlotInputs inputs{job.places.window[shape.rank] + slot_at(shape, 0, 0), shape.slot_bytes,
                          static_cast<int>(shape.ranks) - 1, static_cast<int>(shape.rank)};
  // It is computed for each tile, since registers are few.
  const auto nothing = [&] { return all_good(shape, meetings) ? Value{-0.0F} : not_a_number<Value>(); };
  const Value inverse = exact_inverse(divisor_of<Value>(job.reduce));
  const SeriesFrame chunk = tiles.chunk(shape.rank);
  const auto note = [&] {
    simt::atomic_or(&meetings.nonfinite[1], ~0U);
    report_nonfinite(job.reduce.call);
  };
  std::uint32_t tile = tiles.first_tile(shape.rank);
  GRADWIRE_ROLLED
  for (; tile < full_tiles(chunk); tile += shape.blocks) {
    const TilePlace place = full(tiles.place(chunk, tile));
    const std::uint64_t offset = window_offset<Codec>(tile);
    reduce_tile<Codec::kAhead>(Sum{job.reduce, inputs, Codec::context(place.tile), place, offset}, nothing(), inverse,
                               shared, note);
    simt::sync();
    push_tile(job.places, offset, Codec::Core::tile_bytes(0, kTileElements));
  }
  if (is_short(chunk, tile)) {
    const TilePlace place = tiles.place(chunk, tile);
    const std::uint64_t offset = window_offset<Codec>(tile);
    reduce_tile<Codec::kAhead>(Sum{job.reduce, inputs, Codec::context(place.tile), place, offset}, nothing(), inverse,
                               shared, note);
    simt::sync();
    push_tile(job.places, offset, Codec::Core::tile_bytes(0, place.count));
  }
}

/// Decodes this block's tiles of all shards.
template <class Codec, class Job>
GRADWIRE_DEVICE void decode_all(const WindowTiles<Job>& tiles, const Meetings& meetings) {
  const Job& job = tiles.job;
  const WindowShape& shape = job.places.shape;
  GRADWIRE_ROLLED
  for (std::uint32_t distance = 0; distance < shape.ranks; ++distance) {
    const std::uint32_t shard = rank_after(shape, distance);
    const SeriesFrame chunk = tiles.chunk(shard);
    const bool good = meetings.over == 0 && (meetings.good[1] >> shard & 1U) != 0;
    const std::uint8_t* slot = frame_bytes(job.places.window[shape.rank] + slot_at(shape, 1, shard));
    std::uint32_t tile = tiles.first_tile(shard);
    GRADWIRE_ROLLED
    for (; tile < full_tiles(chunk); tile += shape.blocks) {
      decode_full_tile<Codec, false>(job.decode, full(tiles.place(chunk, tile)), slot + window_offset<Codec>(tile),
                                     good);
    }
    if (is_short(chunk, tile)) {
      decode_tile<Codec, false>(job.decode, tiles.place(chunk, tile), slot + window_offset<Codec>(tile), good);
    }
  }
}

/// The header of a frame: from the first hop that of a shard's part, from the second that of its sum.
template <class Job>
GRADWIRE_DEVICE FramePlace header_place(const WindowTiles<Job>& tiles, std::uint32_t hop, std::uint32_t shard,
                                        std::uint8_t* bytes, int peer) {
  FramePlace place = tiles.chunk(shard).place;
  place.bytes = bytes;
  place.hop = static_cast<std::uint8_t>(hop);
  place.peer = peer;
  return place;
}

/// Meets the other ranks, and exchanges the headers of what the blocks have stored for each other.
template <class Job>
GRADWIRE_DEVICE void meet_with_headers(const WindowTiles<Job>& tiles, std::uint32_t hop, Meetings& meetings) {
  const WindowPlaces& places = tiles.job.places;
  const WindowShape& shape = places.shape;
  const CallFields& call = tiles.job.encode.call;
  const auto leave = [&](std::uint32_t peer) {
    std::uint8_t* to = places.window[peer] + header_at(shape, hop, shape.rank, simt::block());
    const FramePlace place = header_place(tiles, hop, hop == 0 ? peer : shape.rank, to, -1);
    const bool nonfinite = (meetings.nonfinite[hop] >> peer & 1U) != 0;
    GRADWIRE_UNROLL
    for (std::uint32_t i = 0; i < kHeaderWords; ++i) {
      const std::uint32_t flags = i == kFlagsWord && nonfinite ? kNonfiniteBit : 0;
      simt::store4(to + 4 * i, header_word(i, call.codec, place, call.bucket, tiles.step()) | flags);
    }
  };
  const auto look = [&](std::uint32_t peer) {
    std::uint8_t* from = places.window[shape.rank] + header_at(shape, hop, peer, simt::block());
    const FramePlace place = header_place(tiles, hop, hop == 0 ? shape.rank : peer, from, static_cast<int>(peer));
    const HeaderCheck header = check_header(call.codec, place, call.bucket, tiles.step());
    if (!header.good) {
      report_bad(call, place.peer);
    }
    if (!header.good || (header.nonfinite && hop == 1)) {
      report_nonfinite(call);
    }
    return header.good;
  };
  meet(places, hop, 0, meetings, leave, look);
}

template <class Codec, class Job>
GRADWIRE_KERNEL_OF(Codec::kWindowBlocks)
reduce_windows(GRADWIRE_PARAMETER(Job) job) {
  GRADWIRE_SHARED typename Codec::Shared shared[simt::kWarps];
  GRADWIRE_SHARED Meetings meetings;
  begin_meetings(job.places, meetings);
  const WindowTiles<Job> tiles{job};
  if (meetings.over == 0) {
    encode_parts<Codec>(tiles, meetings, shared[simt::warp()]);
    meet_with_headers(tiles, 0, meetings);
  }
  if (meetings.over == 0) {
    sum_own<Codec>(tiles, meetings, shared[simt::warp()]);
    meet_with_headers(tiles, 1, meetings);
  }
  decode_all<Codec>(tiles, meetings);
  end_meetings(job.places, 1);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WINDOW_REDUCE_HPP
