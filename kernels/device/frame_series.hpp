// The frames of a job (FrameSeries in kernels/device/jobs.hpp): where each lies, and which elements it holds.
#ifndef GRADWIRE_KERNELS_DEVICE_FRAME_SERIES_HPP
#define GRADWIRE_KERNELS_DEVICE_FRAME_SERIES_HPP

#include "kernels/device/jobs.hpp"
#include "kernels/platform.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

GRADWIRE_HOST_DEVICE constexpr std::uint32_t tiles_of(std::uint32_t count) {
  return count / kTileElements + (count % kTileElements != 0 ? 1U : 0U);
}

/// One frame of a series.
struct SeriesFrame {
  FramePlace place;
  std::uint32_t first;  // of its elements in the job's arrays
};

GRADWIRE_HOST_DEVICE constexpr SeriesFrame frame_of_series(const FramePlace& places, const FrameSeries& series,
                                                           std::uint32_t number) {
  if (series.frames == 1) {
    return {places, 0};
  }
  const std::uint32_t shard = number + (number >= series.left_out ? 1U : 0U);
  const std::uint32_t longer = shard < series.longer ? shard : series.longer;
  const std::uint32_t first = shard * series.each + longer * kTileElements;
  const std::uint32_t next = first + series.each + (shard < series.longer ? kTileElements : 0);
  const std::uint32_t begin = first + series.begin;
  const std::uint32_t past = next < series.end && shard != series.last ? next : series.end;
  const std::uint32_t left = past > begin ? past - begin : 0;
  FramePlace place = places;
  // NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result): a series has less than 2^31 bytes
  place.bytes += number * series.pitch;
  place.count = left < places.count ? left : places.count;
  place.first_tile += shard * series.tiles + longer;
  place.peer = places.peer < 0 ? static_cast<int>(shard) : places.peer;
  return {place, begin};
}

/// The number of tiles of a series. A frame without elements has none, and counts as one for the kernel that checks
/// its header.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t series_tiles(const FramePlace& places, const FrameSeries& series) {
  const std::uint32_t tiles = tiles_of(places.count);
  return series.frames * (tiles == 0 ? 1 : tiles);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_FRAME_SERIES_HPP
