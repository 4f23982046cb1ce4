// Residuals in int8: blocks with a common scale. A block that is read or stored in part is decoded whole.
#include "exchange/residuals/residual_blocks.hpp"

#include <algorithm>
#include <cstring>

#include "exchange/residuals/residual_values.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::uint64_t kRoomBlocks = 32;

std::uint8_t* octets(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }
const std::uint8_t* octets(const std::byte* bytes) { return reinterpret_cast<const std::uint8_t*>(bytes); }

// Calls body(first block, blocks) for pieces of a run of blocks that fit into a small buffer.
template <class Body>
void for_each_room(std::uint64_t first, std::uint64_t blocks, Body body) {
  for (std::uint64_t done = 0; done < blocks; done += kRoomBlocks) {
    body(first + done, std::min(kRoomBlocks, blocks - done));
  }
}

// Rounds blocks; `number` is that of the first one in its tensor.
void round_blocks(const ResidualRounding& rounding, std::uint64_t number, const float* values, std::uint64_t blocks,
                  std::byte* out) {
  while (blocks > 0) {  // once, but for the blocks around a multiple of 2^32 elements
    const std::uint64_t position = number * kResidualBlock;
    const auto low = static_cast<std::uint32_t>(position);
    const std::uint64_t some = std::min(blocks, ((std::uint64_t{1} << 32) - low) / kResidualBlock);
    codec::round_to_int8(rounding.key(static_cast<std::uint32_t>(position >> 32)), low, values, some, octets(out));
    number += some;
    values += some * kResidualBlock;
    out += some * kBlockBytes;
    blocks -= some;
  }
}

}  // namespace

bool ResidualValues::whole_blocks(std::uint64_t first, std::uint64_t count) const noexcept {
  const bool begins = first == 0 || (lead_ + first) % kResidualBlock == 0;
  const bool ends = first + count == count_ || (lead_ + first + count) % kResidualBlock == 0;
  return !in_blocks() || (begins && ends);
}

void ResidualValues::read_blocks(std::uint64_t first, std::uint64_t count, float* scratch, bool loads) const {
  for_each_block(lead_ + first, count, [&](std::uint64_t at, std::uint64_t blocks, Slots slots) {
    std::byte room[kRoomBlocks * kBlockBytes];
    if (!slots.all()) {
      float block[kResidualBlock];
      get_bytes(at * kBlockBytes, std::span(room, kBlockBytes), loads);
      codec::widen_int8(octets(room), 1, block);
      std::copy_n(block + slots.first, slots.count, scratch);
    } else if (spilled_.empty()) {
      codec::widen_int8(octets(bytes_.data() + at * kBlockBytes), blocks, scratch);
    } else {
      for_each_room(at, blocks, [&](std::uint64_t block, std::uint64_t some) {
        get_bytes(block * kBlockBytes, std::span(room, some * kBlockBytes), loads);
        codec::widen_int8(octets(room), some, scratch + (block - at) * kResidualBlock);
      });
    }
    scratch += blocks * slots.count;
  });
}

void ResidualValues::store_blocks(std::uint64_t first, std::uint64_t count, const float* values,
                                  const ResidualRounding& rounding, std::uint64_t index) {
  // Block 0 begins up to kResidualBlock elements before the tensor does, so blocks of a tensor count from 1.
  const std::uint64_t number = (index + kResidualBlock - first - lead_) / kResidualBlock;
  for_each_block(lead_ + first, count, [&](std::uint64_t at, std::uint64_t blocks, Slots slots) {
    std::byte room[kRoomBlocks * kBlockBytes];
    if (!slots.all()) {
      float block[kResidualBlock] = {};
      if (const std::uint64_t begin = at * kResidualBlock; !whole_blocks(begin + slots.first - lead_, slots.count)) {
        const std::uint64_t here = std::max<std::uint64_t>(begin, lead_);
        const std::uint64_t past = std::min(begin + kResidualBlock, lead_ + count_);
        read_blocks(here - lead_, past - here, block + (here - begin), false);
      }
      std::copy_n(values, slots.count, block + slots.first);
      round_blocks(rounding, number + at, block, 1, room);
      put_bytes(at * kBlockBytes, std::span(room, kBlockBytes));
    } else if (spilled_.empty()) {
      round_blocks(rounding, number + at, values, blocks, bytes_.data() + at * kBlockBytes);
    } else {
      for_each_room(at, blocks, [&](std::uint64_t block, std::uint64_t some) {
        round_blocks(rounding, number + block, values + (block - at) * kResidualBlock, some, room);
        put_bytes(block * kBlockBytes, std::span(room, some * kBlockBytes));
      });
    }
    values += blocks * slots.count;
  });
}

void ResidualValues::copy_blocks(std::uint64_t first, std::uint64_t count, const ResidualValues& from,
                                 std::uint64_t from_first, const ResidualRounding& rounding, std::uint64_t index) {
  const auto round_again = [&](std::uint64_t done, std::uint64_t some) {
    float room[kResidualBlock];
    store(first + done, some, from.look(from_first + done, some, room), rounding, index + done);
  };
  const bool same = from.has_blocks_at(from_first, lead_ + first);
  std::uint64_t done = 0;
  for_each_block(lead_ + first, count, [&](std::uint64_t at, std::uint64_t blocks, Slots slots) {
    const std::uint64_t from_at = (from.lead_ + from_first + done) / kResidualBlock;
    if (!same) {
      for (std::uint64_t block = 0; block < blocks; ++block) {
        round_again(done + block * kResidualBlock, slots.count);
      }
    } else if (slots.all()) {
      copy_bytes(at * kBlockBytes, blocks * kBlockBytes, from, from_at * kBlockBytes);
    } else if (whole_blocks(first + done, slots.count)) {
      std::byte block[kBlockBytes];
      from.get_bytes(from_at * kBlockBytes, block, false);
      std::fill(block + 1, block + 1 + slots.first, std::byte{0});
      std::fill(block + 1 + slots.end(), block + kBlockBytes, std::byte{0});
      set_bytes(at * kBlockBytes, block);
    } else {
      round_again(done, slots.count);
    }
    done += blocks * slots.count;
  });
}

}  // namespace gradwire::exchange
