// The chunks and the job of one kernel over windows, as sessions make them (exchange/stream/window_calls.hpp), for
// tests that launch the kernel themselves.
#pragma once

#include <cstdint>

#include "gradwire/dtype.hpp"
#include "kernels/device/frame_series.hpp"
#include "kernels/device/jobs.hpp"
#include "kernels/device/window_job.hpp"
#include "kernels/tile.hpp"

namespace gradwire::test {

/// The chunks of a call of `count` elements over `ranks`, or those of one of its turns.
struct WindowChunks {
  kernels::FramePlace place;
  kernels::FrameSeries series;

  /// `begin_tile`: the first tile of each shard; `most_tiles`: the longest chunk, 0: a whole shard.
  WindowChunks(std::uint32_t count, std::uint32_t ranks, std::uint32_t begin_tile = 0, std::uint32_t most_tiles = 0)
      : place{.bytes = nullptr, .count = 0, .first_tile = begin_tile, .hop = 0, .peer = -1},
        series{.frames = ranks, .begin = begin_tile * kernels::kTileElements, .end = count} {
    const std::uint32_t tiles = kernels::tiles_of(count);
    place.count = (most_tiles == 0 ? (tiles + ranks - 1) / ranks : most_tiles) * kernels::kTileElements;
    series.each = tiles / ranks * kernels::kTileElements;
    series.longer = tiles % ranks;
    series.tiles = tiles / ranks;
  }
  [[nodiscard]] kernels::SeriesFrame of(std::uint32_t shard) const {
    return kernels::frame_of_series(place, series, shard);
  }
};

/// The memory of one rank; residuals are null where there is no feedback. `owner` begins with the rank's whole shard.
struct WindowMemories {
  kernels::CallFields call;
  void* input = nullptr;
  void* output = nullptr;
  DType dtype = DType::f32;
  float* local = nullptr;
  float* owner = nullptr;
  double divisor = 1;
};

inline kernels::WindowJob window_job(const kernels::WindowPlaces& places, const WindowChunks& chunks,
                                     const WindowMemories& memory) {
  const std::uint32_t rank = places.shape.rank;
  const std::uint32_t own = WindowChunks(chunks.series.end, chunks.series.frames).of(rank).first;
  kernels::WindowJob job{.places = places, .encode = {}, .reduce = {}, .decode = {}};
  job.encode.call = job.reduce.call = job.decode.call = memory.call;
  job.encode.frame = chunks.place;
  job.encode.series = chunks.series;
  job.encode.values = job.reduce.own = memory.input;
  job.decode.values = memory.output;
  job.encode.values_dtype = job.reduce.own_dtype = job.decode.values_dtype = memory.dtype;
  job.encode.residual = job.reduce.own_residual = memory.local;
  job.reduce.divisor = memory.divisor;
  job.reduce.out = places.window[rank] + kernels::slot_at(places.shape, 1, rank);
  job.reduce.owner_residual = memory.owner == nullptr ? nullptr : memory.owner - own;
  return job;
}

}  // namespace gradwire::test
