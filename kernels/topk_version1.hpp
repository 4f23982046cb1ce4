// Frames of version 1 behind topk, which will always decode and are no longer written. They differ in the indices: 12
// bits each, two in 3 bytes, little-endian; an odd last one in 2 bytes, its upper 4 bits 0. Tiles are padded to 16
// bytes.
#ifndef GRADWIRE_KERNELS_TOPK_VERSION1_HPP
#define GRADWIRE_KERNELS_TOPK_VERSION1_HPP

#include "kernels/topk.hpp"

namespace gradwire::kernels {

/// The indices of a frame of version 1.
struct TwelveBits {
  static constexpr std::uint32_t kAlignment = kPayloadAlignment;

  static constexpr std::uint32_t bytes(std::uint32_t /*count*/, std::uint32_t selected) {
    return selected + (selected + 1) / 2;
  }

  /// Returns whether they ascend, are below `count`, and the upper bits of an odd last one are 0.
  static bool load(const std::uint8_t* in, std::uint32_t count, std::uint32_t selected, std::uint16_t* index) {
    std::uint32_t next = 0;  // the smallest index that may follow
    for (std::uint32_t j = 0; j < selected; ++j) {
      const std::uint8_t* at = in + j / 2 * 3 + j % 2;
      const std::uint32_t pair = at[0] | static_cast<std::uint32_t>(at[1]) << 8;
      index[j] = static_cast<std::uint16_t>(j % 2 == 0 ? pair & 0xFFFU : pair >> 4);
      if (index[j] < next || index[j] >= count) {
        return false;
      }
      next = index[j] + 1U;
    }
    return selected % 2 == 0 || in[bytes(count, selected) - 1] < 16;
  }
};

/// The core for these frames, which only decodes.
template <class SelectedCoder>
class TopKVersion1 : TopK<SelectedCoder, TwelveBits> {
  using Core = TopK<SelectedCoder, TwelveBits>;

 public:
  using Core::decode;
  using Core::decode_add;
  using Core::tile_bytes;
  using typename Core::Value;
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_TOPK_VERSION1_HPP
