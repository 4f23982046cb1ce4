// How the indices of the elements that topk selected are written: Elias-Fano (P. Elias, "Efficient storage and
// retrieval by content and address of static files", 1974; R. Fano, 1971), or a bitmap where that takes fewer bytes.
// First comes a run of bits, in which bit (index >> low) + j stands for the j-th index (in a bitmap bit `index`); then
// the low bits of all indices, in order. Bit i is bit i % 8 of byte i / 8; spare bits of the last byte are 0. The
// number of bytes depends on the two counts alone.
#ifndef GRADWIRE_KERNELS_INDEX_CODE_HPP
#define GRADWIRE_KERNELS_INDEX_CODE_HPP

#include "kernels/tile.hpp"

namespace gradwire::kernels {

/// The code of `selected` indices below `count`; 1 <= selected <= count <= kTileElements.
struct IndexCode {
  std::uint32_t selected;
  std::uint32_t low;     // number of low bits of an index that are written as they are
  std::uint32_t run;     // number of bits of the run
  std::uint32_t spread;  // 1: Elias-Fano; 0: a bitmap

  [[nodiscard]] GRADWIRE_HOST_DEVICE constexpr std::uint32_t bits() const { return run + low * selected; }
  [[nodiscard]] GRADWIRE_HOST_DEVICE constexpr std::uint32_t bytes() const { return (bits() + 7) / 8; }
  /// The bit of the run that stands for the j-th index.
  [[nodiscard]] GRADWIRE_HOST_DEVICE constexpr std::uint32_t place(std::uint32_t index, std::uint32_t j) const {
    return (index >> low) + spread * j;
  }
};

GRADWIRE_HOST_DEVICE constexpr IndexCode index_code(std::uint32_t count, std::uint32_t selected) {
  std::uint32_t low = 0;  // floor(log2(count / selected)), below 16
  for (std::uint32_t step = 8; step != 0; step /= 2) {
    low += count >> (low + step) >= selected ? step : 0;
  }
  const IndexCode coded{selected, low, selected + ((count - 1) >> low), 1};
  const IndexCode bitmap{selected, 0, count, 0};
  return bitmap.bytes() < coded.bytes() ? bitmap : coded;
}

/// Bits [32 w, 32 w + 32) of the run, zeros behind it. The tile has these 4 bytes: it is padded to 4.
GRADWIRE_HOST_DEVICE inline std::uint32_t run_bits(std::uint32_t word, const IndexCode& code, std::uint32_t w) {
  const std::uint32_t left = code.run - 32 * w;
  return left < 32 ? word & ((1U << left) - 1) : word;
}

/// The j-th index, whose bit stands at `place` of the run. Any j below `selected` is allowed, also for damaged bytes.
/// Reads up to 2 bytes behind the indices; these belong to the values, which have at least 2.
GRADWIRE_HOST_DEVICE inline std::uint32_t load_index(const std::uint8_t* in, const IndexCode& code, std::uint32_t place,
                                                     std::uint32_t j) {
  const std::uint32_t high = (place - code.spread * j) << code.low;
  if (code.low == 0) {
    return high;
  }
  const std::uint32_t bit = code.run + code.low * j;
  const std::uint8_t* at = in + bit / 8;
  const std::uint32_t three = at[0] | static_cast<std::uint32_t>(at[1]) << 8 | static_cast<std::uint32_t>(at[2]) << 16;
  return high | ((three >> (bit % 8)) & ((1U << code.low) - 1));
}

/// Whether the bits behind the indices, in their last byte, are 0.
GRADWIRE_HOST_DEVICE inline bool spare_bits_zero(const std::uint8_t* in, const IndexCode& code) {
  return code.bits() % 8 == 0 || in[code.bits() / 8] >> (code.bits() % 8) == 0;
}

/// The indices of a frame of version 2.
struct EliasFano {
  static constexpr std::uint32_t kAlignment = 4;  // a tile's payload is padded to this many bytes

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t bytes(std::uint32_t count, std::uint32_t selected) {
    return index_code(count, selected).bytes();
  }

  /// `index`: ascending and below `count`.
  static void store(const std::uint16_t* index, std::uint32_t count, std::uint32_t selected, std::uint8_t* out) {
    const IndexCode code = index_code(count, selected);
    std::uint64_t bits = 0;  // bits that are not written yet
    std::uint32_t w = 0;     // the 32-bit word that they go to
    const auto write_until = [&](std::uint32_t end) {
      for (; w < end; ++w, bits = 0) {
        kernels::store(out, w, static_cast<std::uint32_t>(bits));
      }
    };
    for (std::uint32_t j = 0; j < selected; ++j) {
      const std::uint32_t place = code.place(index[j], j);
      write_until(place / 32);
      bits |= 1U << (place % 32);
    }
    write_until(code.run / 32);
    std::uint32_t held = code.run % 32;  // number of valid bits in `bits`
    for (std::uint32_t j = 0; code.low != 0 && j < selected; ++j) {
      bits |= std::uint64_t{index[j] & ((1U << code.low) - 1)} << held;
      held += code.low;
      if (held >= 32) {
        kernels::store(out, w, static_cast<std::uint32_t>(bits));
        ++w;
        bits >>= 32;
        held -= 32;
      }
    }
    for (std::uint32_t b = 4 * w; b < code.bytes(); ++b, bits >>= 8) {
      out[b] = static_cast<std::uint8_t>(bits);
    }
  }

  /// Reads the indices. Returns whether there are `selected` of them, ascending and below `count`, and spare bits are
  /// 0.
  static bool load(const std::uint8_t* in, std::uint32_t count, std::uint32_t selected, std::uint16_t* index) {
    const IndexCode code = index_code(count, selected);
    std::uint32_t found = 0;
    std::uint32_t next = 0;  // the smallest index that may follow
    for (std::uint32_t w = 0; 32 * w < code.run; ++w) {
      for (std::uint32_t word = run_bits(kernels::load<std::uint32_t>(in, w), code, w); word != 0; word &= word - 1) {
        if (found == selected) {
          return false;
        }
        const std::uint32_t place = 32 * w + static_cast<std::uint32_t>(__builtin_ctz(word));
        const std::uint32_t at = load_index(in, code, place, found);
        if (at < next) {
          return false;
        }
        index[found] = static_cast<std::uint16_t>(at);
        ++found;
        next = at + 1;
      }
    }
    return found == selected && next <= count && spare_bits_zero(in, code);
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_INDEX_CODE_HPP
