// Frames as kernels see them: the header as 8 words, tiles behind it, and the sticky words that a bad frame sets.
// A CRC is not computed on a device, so a frame that has one is bad.
#ifndef GRADWIRE_KERNELS_DEVICE_FRAME_WORDS_HPP
#define GRADWIRE_KERNELS_DEVICE_FRAME_WORDS_HPP

#include "kernels/device/frame_series.hpp"
#include "kernels/device/strip.hpp"
#include "wire/frame.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kHeaderBytes = static_cast<std::uint32_t>(wire::kHeaderBytes);
inline constexpr std::uint32_t kHeaderWords = kHeaderBytes / 4;
inline constexpr std::uint32_t kFlagsWord = 1;
inline constexpr std::uint32_t kNonfiniteBit = std::uint32_t{wire::kFlagNonfinite} << 16;

/// Word `i` of the header, without flags, of the frame at `place`.
GRADWIRE_DEVICE std::uint32_t header_word(std::uint32_t i, const FrameCodec& codec, const FramePlace& place,
                                          std::uint32_t bucket, std::uint32_t step) {
  switch (i) {
    case 0: return wire::kMagic;
    case kFlagsWord:
      return std::uint32_t{kWireVersion} | static_cast<std::uint32_t>(codec.dtype) << 8 | std::uint32_t{codec.id} << 24;
    case 2: return std::uint32_t{codec.k} | (place.hop | std::uint32_t{codec.terms} << 4) << 16;  // epoch 0
    case 3: return place.count;
    case 4: return place.first_tile;
    case 5: return bucket;
    case 6: return step;
    default: return 0;  // no CRC
  }
}

GRADWIRE_DEVICE std::uint32_t step_of(const CallFields& call) { return call.step == nullptr ? 0 : *call.step; }

/// Writes word `i` of all headers of a job.
GRADWIRE_DEVICE void open_word(const HeaderJob& job, std::uint32_t i) {
  const FramePlace place = frame_of_series(job.frame, job.series, i / kHeaderWords).place;
  const std::uint32_t word = i % kHeaderWords;
  simt::store4(place.bytes + 4 * word, header_word(word, job.call.codec, place, job.call.bucket, step_of(job.call)));
}

/// The check of a frame's header. The flags of a good frame are 0 or kNonfiniteBit; anything else is a bad frame.
struct HeaderCheck {
  bool good;
  bool nonfinite;
};
GRADWIRE_DEVICE HeaderCheck check_header(const FrameCodec& codec, const FramePlace& place, std::uint32_t bucket,
                                         std::uint32_t step) {
  std::uint32_t difference = 0;
  std::uint32_t flags = 0;
  const simt::Words4 halves[2] = {simt::load16(place.bytes), simt::load16(place.bytes + 16)};
  GRADWIRE_UNROLL
  for (std::uint32_t i = 0; i < kHeaderWords; ++i) {
    const std::uint32_t other = halves[i / 4].word[i % 4] ^ header_word(i, codec, place, bucket, step);
    difference |= i == kFlagsWord ? other & ~kNonfiniteBit : other;
    flags |= i == kFlagsWord ? other & kNonfiniteBit : 0U;
  }
  return {difference == 0, flags != 0};
}

GRADWIRE_DEVICE void report_bad(const CallFields& call, int peer) {
  if (call.status != nullptr) {
    simt::atomic_add(&call.status->bad_frames, 1);
    simt::atomic_max(&call.status->first_bad, call.by_rank ? static_cast<std::uint32_t>(peer + 1) : 0U);
  }
}

/// Job: CallFields, or one with its members `status` and `nonfinite`.
template <class Job>
GRADWIRE_DEVICE void report_nonfinite(const Job& job) {
  if (job.nonfinite != nullptr) {
    simt::atomic_or(job.nonfinite + simt::block() % kNoteWords, 1);
  } else if (job.status != nullptr) {
    simt::atomic_or(&job.status->nonfinite, 1);
  }
}

/// Marks that NaN or Inf was encoded into this frame. Threads may call it in any order and any number of times.
GRADWIRE_DEVICE void mark_nonfinite(const CallFields& call, std::uint8_t* frame) {
  simt::atomic_or(reinterpret_cast<std::uint32_t*>(frame) + kFlagsWord, kNonfiniteBit);
  report_nonfinite(call);
}

/// A tile of a series, as the blocks of a kernel take them: all frames count as many tiles as the largest one.
struct SeriesTile {
  SeriesFrame frame;
  std::uint32_t tile;  // of the frame; behind its last one in shorter frames
};

GRADWIRE_DEVICE SeriesTile series_tile(const FramePlace& places, const FrameSeries& series, std::uint32_t index) {
  if (series.frames == 1) {
    return {{places, 0}, index};
  }
  const std::uint32_t tiles = tiles_of(places.count);
  return {frame_of_series(places, series, index / tiles), index % tiles};
}

/// The place of tile `index` of `count` elements that begin at tile `first_tile` of the bucket.
GRADWIRE_DEVICE TilePlace tile_place(const CallFields& call, std::uint32_t k, std::uint32_t step,
                                     std::uint32_t first_tile, std::uint32_t count, std::uint32_t index) {
  const std::uint32_t left = count - index * kTileElements;
  return {{call.bucket, step, first_tile + index, k},
          std::uint64_t{index} * kTileElements,
          left < kTileElements ? left : kTileElements};
}

/// The place of a tile of a series in the job's arrays.
GRADWIRE_DEVICE TilePlace tile_place(const CallFields& call, std::uint32_t k, std::uint32_t step,
                                     const SeriesTile& at) {
  TilePlace place = tile_place(call, k, step, at.frame.place.first_tile, at.frame.place.count, at.tile);
  place.first = at.frame.first + at.tile * kTileElements;
  return place;
}

/// The same place, whose tile is known to be full, in a form that tells the compiler so.
GRADWIRE_DEVICE TilePlace full(TilePlace place) {
  place.count = kTileElements;
  return place;
}

/// Tells the compiler that frames are aligned to 16 bytes.
template <class Byte>
GRADWIRE_DEVICE Byte* frame_bytes(Byte* frame) {
  return static_cast<Byte*>(__builtin_assume_aligned(frame, 16));
}

/// The beginning of the payload of tile `index`; all tiles before it are full.
template <class Core>
GRADWIRE_DEVICE std::uint64_t tile_offset(std::uint32_t k, std::uint32_t index) {
  return kHeaderBytes + std::uint64_t{index} * Core::tile_bytes(k, kTileElements);
}

/// Zeroes the padding of a tile up to a multiple of `alignment` bytes; called by a whole warp.
GRADWIRE_DEVICE void pad_tile(std::uint8_t* payload, std::uint32_t used_bytes,
                              std::uint32_t alignment = kPayloadAlignment) {
  if (used_bytes + simt::lane() < padded(used_bytes, alignment)) {
    simt::store1(payload + used_bytes + simt::lane(), 0);
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_FRAME_WORDS_HPP
