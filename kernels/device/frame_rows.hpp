// The frames of a job (FrameRow in kernels/device/jobs.hpp): where each lies, and which elements it holds.
#ifndef GRADWIRE_KERNELS_DEVICE_FRAME_ROWS_HPP
#define GRADWIRE_KERNELS_DEVICE_FRAME_ROWS_HPP

#include "kernels/device/jobs.hpp"
#include "kernels/platform.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

GRADWIRE_HOST_DEVICE constexpr std::uint32_t tiles_of(std::uint32_t count) {
  return count / kTileElements + (count % kTileElements != 0 ? 1U : 0U);
}

/// One frame of a row.
struct RowFrame {
  FramePlace place;
  std::uint32_t first;  // of its elements in the job's arrays
};

GRADWIRE_HOST_DEVICE constexpr RowFrame frame_of_row(const FramePlace& places, const FrameRow& row,
                                                     std::uint32_t number) {
  if (row.frames == 1) {
    return {places, 0};
  }
  const std::uint32_t shard = number + (number >= row.left_out ? 1U : 0U);
  const std::uint32_t longer = shard < row.longer ? shard : row.longer;
  const std::uint32_t first = shard * row.each + longer * kTileElements;
  const std::uint32_t next = first + row.each + (shard < row.longer ? kTileElements : 0);
  const std::uint32_t begin = first + row.begin;
  const std::uint32_t past = next < row.end ? next : row.end;
  const std::uint32_t left = past > begin ? past - begin : 0;
  FramePlace place = places;
  place.bytes += number * row.pitch;
  place.count = left < places.count ? left : places.count;
  place.first_tile += shard * row.tiles + longer;
  place.peer = places.peer < 0 ? static_cast<int>(shard) : places.peer;
  return {place, begin};
}

/// The number of tiles of a row. A frame without elements has none, and counts as one for whoever looks at its header.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t row_tiles(const FramePlace& places, const FrameRow& row) {
  const std::uint32_t tiles = tiles_of(places.count);
  return row.frames * (tiles == 0 ? 1 : tiles);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_FRAME_ROWS_HPP
