#include "codec/small_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "memory/paged_vector.hpp"

namespace gradwire::codec {
namespace {

constexpr std::size_t kBlock = 256;
// int8 rounds 1% of Gaussian values to 0, and 6% of those of a Student-t distribution with 3 degrees of freedom. Where
// it zeroes most of a block, the smaller half of that block is gone: its NMSE is 1.
constexpr std::uint64_t kBlocksToOneLost = 8;

struct Tile {
  std::span<const float> values;
  std::span<const float> dropped;  // value - decoded
};

void count_blocks(const Tile& tile, SmallValues& found) {
  for (std::size_t first = 0; first < tile.values.size(); first += kBlock) {
    std::size_t nonzero = 0;
    std::size_t zeroed = 0;
    for (std::size_t i = first; i < std::min(first + kBlock, tile.values.size()); ++i) {
      nonzero += tile.values[i] != 0 ? 1 : 0;
      zeroed += tile.values[i] != 0 && tile.dropped[i] == tile.values[i] ? 1 : 0;
    }
    found.blocks += nonzero > 0 ? 1 : 0;
    found.lost_blocks += 2 * zeroed > nonzero ? 1 : 0;
  }
}

// `magnitudes` has room for those of a tile.
SmallValues count_tile(const Tile& tile, float* magnitudes) {
  SmallValues found;
  for (const float value : tile.values) {
    if (value != 0) {
      magnitudes[found.nonzero++] = std::abs(value);
    }
  }
  if (found.nonzero == 0) {
    return found;
  }
  const float* const middle = magnitudes + (found.nonzero - 1) / 2;
  std::nth_element(magnitudes, magnitudes + (found.nonzero - 1) / 2, magnitudes + found.nonzero);
  count_blocks(tile, found);
  for (std::size_t i = 0; i < tile.values.size(); ++i) {
    const double value = tile.values[i];
    const double dropped = tile.dropped[i];
    if (value == 0) {
      continue;
    }
    found.zeroed += dropped == value ? 1 : 0;
    if (std::abs(value) <= *middle) {
      found.square += value * value;
      found.error += dropped * dropped;
    }
  }
  return found;
}

}  // namespace

void SmallValues::add(const SmallValues& other) noexcept {
  nonzero += other.nonzero;
  zeroed += other.zeroed;
  blocks += other.blocks;
  lost_blocks += other.lost_blocks;
  square += other.square;
  error += other.error;
}

double SmallValues::zeroed_share() const noexcept {
  return nonzero == 0 ? 0 : static_cast<double>(zeroed) / static_cast<double>(nonzero);
}

double SmallValues::small_nmse() const noexcept { return square > 0 ? error / square : 0; }

bool SmallValues::lost() const noexcept { return lost_blocks > 0 && lost_blocks * kBlocksToOneLost >= blocks; }

SmallValues find_small_values(const Codec& codec, std::span<const float> values) {
  SmallValues found;
  if (codec.working() == Working::f64 || !codec.lossy()) {
    return found;
  }
  memory::ScratchVector<std::byte> frame(codec.frame_bytes(kTileElements));
  memory::ScratchVector<float> dropped(kTileElements);
  memory::ScratchVector<float> magnitudes(kTileElements);
  for (std::size_t first = 0; first < values.size(); first += kTileElements) {
    const auto tile = values.subspan(first, std::min<std::size_t>(kTileElements, values.size() - first));
    const auto count = static_cast<std::uint32_t>(tile.size());
    if (!all_finite(Working::f32, tile.data(), count)) {
      continue;
    }
    std::fill_n(dropped.begin(), count, 0.0F);
    FrameWriter writer(codec, {.count = count}, false, std::span(frame.data(), codec.frame_bytes(count)));
    writer.write(tile.data(), Residual(dropped.data()), count);
    writer.finish();
    found.add(count_tile({.values = tile, .dropped = {dropped.data(), count}}, magnitudes.data()));
  }
  return found;
}

}  // namespace gradwire::codec
