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
//   int kBlocksOfProcessor                                 how many thread blocks that encode must fit on a processor:
//                                                          more hide more, fewer have more registers each (measured)
//   void expand(context, raw, x)                           their values
// `count` is that of the tile. All lanes of the warp call.
#ifndef GRADWIRE_KERNELS_DEVICE_WARP_CODECS_HPP
#define GRADWIRE_KERNELS_DEVICE_WARP_CODECS_HPP

#include "kernels/block.hpp"
#include "kernels/cast.hpp"
#include "kernels/device/strip.hpp"

namespace gradwire::kernels {

struct NoContext {};
struct NoShared {};

GRADWIRE_DEVICE std::uint32_t left_of(std::uint32_t strip, std::uint32_t count) { return count - strip * kStrip; }

template <DType kWire>
struct WarpCast {
  using Core = CastCore<kWire>;
  using Value = typename Core::Value;
  using Stored = typename Core::Stored;
  using Shared = NoShared;
  using Context = NoContext;
  using Raw = Packed<Stored>;
  static constexpr int kAhead = sizeof(Stored) == 2 ? 4 : (sizeof(Stored) == 4 ? 2 : 1);
  static constexpr int kBlocksOfProcessor = sizeof(Stored) == 8 ? 4 : 5;

  GRADWIRE_DEVICE static Context context(const Tile& /*tile*/) { return {}; }

  GRADWIRE_DEVICE static std::uint32_t encode(const Context& /*context*/, std::uint32_t strip, Value (&x)[kHeld],
                                              std::uint32_t count, std::uint8_t* out, Shared& /*shared*/,
                                              bool /*keeps*/) {
    using Wire = typename Core::Wire;
    Stored bits[kHeld];
    std::uint32_t bad = 0;
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      bits[r] = Wire::stored(x[r]);
      bad |= (bits[r] & Wire::kExponent) == Wire::kExponent ? 1U << r : 0U;
      x[r] = x[r] - Wire::value(bits[r]);
    }
    store_elements(out + strip * kStrip * sizeof(Stored), left_of(strip, count), bits);
    return bad;
  }

  GRADWIRE_DEVICE static Raw fetch(std::uint32_t strip, std::uint32_t count, const std::uint8_t* in) {
    return load_packed<Stored>(in + strip * kStrip * sizeof(Stored), left_of(strip, count));
  }
  GRADWIRE_DEVICE static void expand(const Context& /*context*/, const Raw& raw, Value (&x)[kHeld]) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = Core::Wire::value(raw.element(r));
    }
  }
};

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
  static constexpr int kRegisters = kHeld / kBlocks;  // of one block
  static_assert(kBlocks == 1 || kBlocks == 2);
  static constexpr int kAhead = 4;
  static constexpr int kBlocksOfProcessor = kBlocks == 1 ? 6 : 5;
  struct Raw {
    Packed<Unsigned> codes;
    std::uint16_t scale[kBlocks];
  };

  GRADWIRE_DEVICE static Context context(const Tile& /*tile*/) { return {}; }

  GRADWIRE_DEVICE static std::uint32_t encode(const Context& /*context*/, std::uint32_t strip, float (&x)[kHeld],
                                              std::uint32_t count, std::uint8_t* out, Shared& /*shared*/,
                                              bool /*keeps*/) {
    const std::uint32_t left = left_of(strip, count);
    Unsigned codes[kHeld];
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
      const std::uint16_t scale_bits = nonfinite ? kNanBf16 : Rule::scale(absmax);
      if (simt::lane() == 0 && static_cast<std::uint32_t>(block) * Rule::kBlock < left) {
        simt::store2(out + (strip * kBlocks + static_cast<std::uint32_t>(block)) * 2, scale_bits);
      }
      bad |= nonfinite ? ((1U << kRegisters) - 1) << first : 0U;
      const bool coded = !nonfinite && scale_bits != 0;
      const float scale = coded ? from_bf16(scale_bits) : 1.0F;
      const float inverse = coded ? 1.0F / scale : 0.0F;
      GRADWIRE_UNROLL
      for (int r = first; r < first + kRegisters; ++r) {
        const Code code = Rule::quantize(x[r], inverse);
        codes[r] = static_cast<Unsigned>(coded ? code : Code{0});
        x[r] = coded ? x[r] - Rule::level(code) * scale : x[r];
      }
    }
    store_elements(out + Core::scale_bytes(count) + strip * kStrip * sizeof(Code), left, codes);
    return bad;
  }

  GRADWIRE_DEVICE static Raw fetch(std::uint32_t strip, std::uint32_t count, const std::uint8_t* in) {
    const std::uint32_t left = left_of(strip, count);
    Raw raw;
    raw.codes = load_packed<Unsigned>(in + Core::scale_bytes(count) + strip * kStrip * sizeof(Code), left);
    GRADWIRE_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      raw.scale[block] = static_cast<std::uint32_t>(block) * Rule::kBlock < left
                             ? simt::load2(in + (strip * kBlocks + static_cast<std::uint32_t>(block)) * 2)
                             : std::uint16_t{0};
    }
    return raw;
  }
  GRADWIRE_DEVICE static void expand(const Context& /*context*/, const Raw& raw, float (&x)[kHeld]) {
    GRADWIRE_UNROLL
    for (int r = 0; r < kHeld; ++r) {
      x[r] = Rule::level(static_cast<Code>(raw.codes.element(r))) * from_bf16(raw.scale[r / kRegisters]);
    }
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WARP_CODECS_HPP
