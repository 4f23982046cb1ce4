// The codecs as a warp runs them over one strip in registers (kernels/device/strip.hpp), by the rules of the scalar
// cores and to the same bytes. A warp codec is a class without state:
//   using Core; using Value = Core::Value                  the scalar core, for sizes
//   struct Shared                                          a warp's shared memory
//   struct Context; Context context(tile)                  what the strips of a tile share, per lane
//   uint32_t encode(context, strip, x, count, out, shared, keeps)    writes the strip's part of the payload; with
//   `keeps` x
//                                                          becomes what was dropped. Bit r: register r is of a block
//                                                          with NaN or Inf, whose residual stays
//   struct Raw; Raw fetch(strip, count, in)                the strip's bytes; nothing waits for them before expand()
//   int kAhead                                             how many Raw registers hold beside a sum and a value
//   int kEncodingBlocks, kSummingBlocks                    how many thread blocks that encode, or sum, must fit on a
//                                                          processor: more hide more, fewer have more registers each
//                                                          (measured)
//   int kWindowBlocks                                      the same for the kernel over windows; int4 and int2 spill a
//                                                          few words for it (docs/results/kernels.md)
//   void expand(context, raw, x)                           their values
//   void add(context, raw, sum)                            the same as expand() and an addition, where that is faster
// `count` is that of the tile. All lanes of the warp call.
#ifndef GRADWIRE_KERNELS_DEVICE_WARP_CODECS_HPP
#define GRADWIRE_KERNELS_DEVICE_WARP_CODECS_HPP

#include "kernels/block.hpp"
#include "kernels/cast.hpp"
#include "kernels/device/strip.hpp"
#include "kernels/fp8.hpp"
#include "kernels/int8.hpp"

namespace gradwire::kernels {

struct NoContext {};
struct NoShared {};

/// Number of elements of a tile from a strip on. For a full tile it returns those of the strip, which the compiler
/// knows.
GRADWIRE_DEVICE std::uint32_t remaining_of(std::uint32_t strip, std::uint32_t count) {
  return count == kTileElements ? kStrip : count - strip * kStrip;
}

template <DType kWire>
struct WarpCast {
  using Core = CastCore<kWire>;
  using Value = typename Core::Value;
  using Stored = typename Core::Stored;
  using Shared = NoShared;
  using Context = NoContext;
  using Raw = Packed<Stored>;
  static constexpr int kAhead = sizeof(Stored) == 2 ? 4 : (sizeof(Stored) == 4 ? 2 : 1);
  static constexpr int kEncodingBlocks = sizeof(Stored) == 8 ? 4 : 5;
  static constexpr int kSummingBlocks = sizeof(Stored) == 8 ? 2 : 4;
  static constexpr int kWindowBlocks = 3;

  GRADWIRE_DEVICE static Context context(const Tile& /*tile*/) { return {}; }

  GRADWIRE_DEVICE static std::uint32_t encode(const Context& /*context*/, std::uint32_t strip, Value (&x)[kHeld],
                                              std::uint32_t count, std::uint8_t* out, Shared& /*shared*/, bool keeps) {
    using Wire = typename Core::Wire;
    Stored bits[kHeld];
    std::uint32_t bad = 0;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      bits[r] = Wire::stored(x[r]);
      bad |= (bits[r] & Wire::kExponent) == Wire::kExponent ? 1U << r : 0U;
    }
    if (keeps) {
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        x[r] = x[r] - Wire::value(bits[r]);
      }
    }
    store_elements(out + strip * kStrip * sizeof(Stored), remaining_of(strip, count), bits);
    return bad;
  }

  GRADWIRE_DEVICE static Raw fetch(std::uint32_t strip, std::uint32_t count, const std::uint8_t* in) {
    return load_packed<Stored>(in + strip * kStrip * sizeof(Stored), remaining_of(strip, count));
  }
  GRADWIRE_DEVICE static void expand(const Context& /*context*/, const Raw& raw, Value (&x)[kHeld]) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = Core::Wire::value(raw.element(r));
    }
  }
};

/// Computes Rule::level of each code.
template <class Rule, class Stored>
GRADWIRE_DEVICE void levels_of(const Packed<Stored>& codes, float (&level)[kHeld]) {
  if constexpr (std::is_same_v<Rule, Int8Rule>) {  // bytes of 2^23 + 128 + code: conversions are four times as slow
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      const std::uint32_t above = codes.word[r / 4] ^ 0x80808080U;
      level[r] =
          bits_as<float>(simt::permute(above, 0x4B000000U, 0x7440U + static_cast<std::uint32_t>(r % 4))) - 8388736.0F;
    }
  } else if constexpr (std::is_same_v<Rule, Fp8Rule>) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; r += 2) {
      from_e4m3(static_cast<std::uint16_t>(codes.word[r / 4] >> (8 * (r % 4))), level[r], level[r + 1]);
    }
  } else {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      level[r] = Rule::level(static_cast<typename Rule::Code>(codes.element(r)));
    }
  }
}

/// The rules of kernels/block.hpp. A strip is one block, or two that are its halves.
template <class Rule>
struct WarpBlock {
  using Core = BlockCore<Rule>;
  using Value = float;
  using Code = typename Rule::Code;
  using Unsigned = std::make_unsigned_t<Code>;
  using Shared = NoShared;
  using Context = NoContext;
  static constexpr int kBlocks = static_cast<int>(kStrip / Rule::kBlock);
  static constexpr int kRegisters = kHeld / kBlocks;  // registers of one block
  static_assert(kBlocks == 1 || kBlocks == 2);
  static constexpr int kAhead = 4;
  static constexpr int kEncodingBlocks = kBlocks == 1 ? 6 : 5;
  static constexpr int kSummingBlocks = sizeof(Code) == 1 ? 5 : 4;
  static constexpr int kWindowBlocks = std::is_same_v<Rule, Int8Rule> ? 4 : 3;
  struct Raw {
    Packed<Unsigned> codes;
    std::uint32_t scales;  // a second scale is in the high half
  };

  GRADWIRE_DEVICE static Context context(const Tile& /*tile*/) { return {}; }

  GRADWIRE_DEVICE static std::uint32_t encode(const Context& /*context*/, std::uint32_t strip, float (&x)[kHeld],
                                              std::uint32_t count, std::uint8_t* out, Shared& /*shared*/, bool keeps) {
    const std::uint32_t left = remaining_of(strip, count);
    std::uint32_t codes[kHeld];
    std::uint16_t scale_bits[kBlocks];
    bool coded[kBlocks];
    std::uint32_t bad = 0;
    GRADWIRE_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      const int first = block * kRegisters;
      std::uint32_t absmax = 0;
      GRADWIRE_UNROLL
      for (int r = first; r < first + kRegisters; ++r) {
        const std::uint32_t bits = abs_bits(x[r]);
        absmax = bits > absmax ? bits : absmax;
      }
      absmax = simt::warp_max(absmax);
      const bool nonfinite = absmax >= kInfinity;
      scale_bits[block] = nonfinite ? kNanBf16 : Rule::scale(absmax);
      bad |= nonfinite ? ((1U << kRegisters) - 1) << first : 0U;
      coded[block] = !nonfinite && scale_bits[block] != 0;
      const float scale = coded[block] ? from_bf16(scale_bits[block]) : 1.0F;
      const float inverse = coded[block] ? 1.0F / scale : 0.0F;
      GRADWIRE_UNROLL
      for (int r = first; r < first + kRegisters; ++r) {
        // NOLINTNEXTLINE(bugprone-signed-char-misuse): every reader casts back to Code
        codes[r] = static_cast<std::uint32_t>(Rule::quantize(x[r], inverse));
      }
      if (keeps && coded[block]) {
        GRADWIRE_UNROLL
        for (int r = first; r < first + kRegisters; ++r) {
          x[r] = x[r] - Rule::level(static_cast<Code>(codes[r])) * scale;
        }
      }
    }
    if (simt::lane() == 0) {
      store_scales(out + strip * kBlocks * 2, left, scale_bits);
    }
    auto packed = pack<Unsigned>(codes);
    GRADWIRE_UNROLL
    for (int w = 0; w < Packed<Unsigned>::kWords; ++w) {
      packed.word[w] = coded[w * kBlocks / Packed<Unsigned>::kWords] ? packed.word[w] : 0U;
    }
    store_packed(out + Core::scale_bytes(count) + strip * kStrip * sizeof(Code), left, packed);
    return bad;
  }

  GRADWIRE_DEVICE static Raw fetch(std::uint32_t strip, std::uint32_t count, const std::uint8_t* in) {
    const std::uint32_t left = remaining_of(strip, count);
    Raw raw;
    raw.codes = load_packed<Unsigned>(in + Core::scale_bytes(count) + strip * kStrip * sizeof(Code), left);
    const std::uint8_t* scales = in + strip * kBlocks * 2;
    if (kBlocks == 2 && left > Rule::kBlock) {
      raw.scales = simt::load4(scales);
    } else {
      raw.scales = left != 0 ? simt::load2(scales) : 0U;
    }
    return raw;
  }
  GRADWIRE_DEVICE static void expand(const Context& /*context*/, const Raw& raw, float (&x)[kHeld]) {
    float level[kHeld];
    levels_of<Rule>(raw.codes, level);
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = level[r] * from_bf16(static_cast<std::uint16_t>(raw.scales >> (16 * (r / kRegisters))));
    }
  }

 private:
  GRADWIRE_DEVICE static void store_scales(std::uint8_t* to, std::uint32_t left, const std::uint16_t (&bits)[kBlocks]) {
    if (kBlocks == 2 && left > Rule::kBlock) {
      simt::store4(to, bits[0] | std::uint32_t{bits[kBlocks - 1]} << 16);
    } else {
      simt::store2(to, bits[0]);
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_CODECS_HPP
