// Codecs that keep each element by itself in a float type: bf16 for any tensor, and exact in the tensor's own type.
// Payload of a tile: the elements, in order; zeros up to 16 bytes. NaN and Inf travel element by element.
#ifndef GRADWIRE_KERNELS_CAST_HPP
#define GRADWIRE_KERNELS_CAST_HPP

#include "kernels/elements.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

template <DType kWire>
struct SelectedElements;

template <DType kWire>
struct CastCore {
  using Selected = SelectedElements<kWire>;
  using Wire = Element<kWire>;
  using Stored = typename Wire::Stored;
  using Value = typename Wire::Value;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t count) {
    return count * static_cast<std::uint32_t>(sizeof(Stored));
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t /*k*/, std::uint32_t count) {
    return padded(used_bytes(count));
  }

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& /*tile*/, const Value* values, Residual residual,
                                          std::uint32_t count, std::uint8_t* out) {
    const bool nonfinite = encode_from(0, values, residual, count, out);
    fill_padding(out, used_bytes(count));
    return nonfinite;
  }

  GRADWIRE_HOST_DEVICE static void decode(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count,
                                          Value* values) {
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = Wire::value(load<Stored>(in, i));
    }
  }

  GRADWIRE_HOST_DEVICE static void decode_add(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count,
                                              Value* values) {
    for (std::uint32_t i = 0; i < count; ++i) {
      values[i] = values[i] + Wire::value(load<Stored>(in, i));
    }
  }

  /// Writes values as elements of the wire type, without padding.
  GRADWIRE_HOST_DEVICE static void narrow(const Value* values, std::uint32_t count, std::uint8_t* out) {
    for (std::uint32_t i = 0; i < count; ++i) {
      store(out, i, Wire::stored(values[i]));
    }
  }

  /// Encodes elements [first, count).
  GRADWIRE_HOST_DEVICE static bool encode_from(std::uint32_t first, const Value* values, Residual residual,
                                               std::uint32_t count, std::uint8_t* out) {
    bool nonfinite = false;
    for (std::uint32_t i = first; i < count; ++i) {
      const Value x = residual.none() ? values[i] : values[i] + static_cast<Value>(residual.before[i]);
      const Stored bits = Wire::stored(x);
      store(out, i, bits);
      const bool finite = (bits & Wire::kExponent) != Wire::kExponent;
      nonfinite = nonfinite || !finite;
      if (!residual.none()) {
        residual.after[i] = finite ? static_cast<float>(x - Wire::value(bits)) : residual.before[i];
      }
    }
    return nonfinite;
  }
};

/// The coder of selected values: the elements, in order.
template <DType kWire>
struct SelectedElements {
  using Core = CastCore<kWire>;
  using Value = typename Core::Value;
  // Magnitudes from here on round to Inf.
  static constexpr std::uint32_t kNonfiniteFrom =
      kWire == DType::f16 ? 0x477FF000U : (kWire == DType::bf16 ? 0x7F7F8000U : kInfinity);

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t bytes(std::uint32_t count) { return Core::used_bytes(count); }
  GRADWIRE_HOST_DEVICE static bool encode(const Value* values, std::uint32_t count, std::uint8_t* out) {
    return Core::encode_from(0, values, nullptr, count, out);
  }
  GRADWIRE_HOST_DEVICE static void decode(const std::uint8_t* in, std::uint32_t count, Value* values) {
    Core::decode(Tile{}, in, count, values);
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_CAST_HPP

// SIMD. Lanes<type> is the conversion over whole vectors: VU32 stored(VF32), VF32 value(VU32), load and store.
#if defined(GRADWIRE_HIGHWAY) && defined(GRADWIRE_KERNELS_CAST_SIMD_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_KERNELS_CAST_SIMD_HPP
#undef GRADWIRE_KERNELS_CAST_SIMD_HPP
#else
#define GRADWIRE_KERNELS_CAST_SIMD_HPP
#endif

#include "kernels/simd.hpp"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {

template <DType>
struct CastLanes;

template <>
struct CastLanes<DType::f32> {
  static HWY_INLINE VU32 stored(VF32 x) { return hn::BitCast(U32(), x); }
  static HWY_INLINE VF32 value(VU32 bits) { return hn::BitCast(F32(), bits); }
  static HWY_INLINE void store(VU32 bits, std::uint8_t* out) {
    hn::StoreU(bits, U32(), reinterpret_cast<std::uint32_t*>(out));
  }
  static HWY_INLINE VU32 load(const std::uint8_t* in) {
    return hn::LoadU(U32(), reinterpret_cast<const std::uint32_t*>(in));
  }
};

template <>
struct CastLanes<DType::f16> {
  static HWY_INLINE VU32 stored(VF32 x) { return to_f16(x); }
  static HWY_INLINE VF32 value(VU32 bits) { return from_f16(bits); }
  static HWY_INLINE void store(VU32 bits, std::uint8_t* out) { store_u16(bits, out); }
  static HWY_INLINE VU32 load(const std::uint8_t* in) { return load_u16(in); }
};

template <>
struct CastLanes<DType::bf16> {
  static HWY_INLINE VU32 stored(VF32 x) { return to_bf16(x); }
  static HWY_INLINE VF32 value(VU32 bits) { return from_bf16(bits); }
  static HWY_INLINE void store(VU32 bits, std::uint8_t* out) { store_u16(bits, out); }
  static HWY_INLINE VU32 load(const std::uint8_t* in) { return load_u16(in); }
};

template <DType kWire>
struct CastSimd : CastCore<kWire> {
  using Core = CastCore<kWire>;
  using Lanes = CastLanes<kWire>;
  static constexpr std::size_t kBytes = sizeof(typename Core::Stored);

  static bool encode(const Tile& /*tile*/, const float* values, Residual residual, std::uint32_t count,
                     std::uint8_t* out) {
    const bool nonfinite = residual.none() ? encode_all<false>(values, residual, count, out)
                                           : encode_all<true>(values, residual, count, out);
    fill_padding(out, Core::used_bytes(count));
    return nonfinite;
  }

  static void decode(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_all<false>(in, count, values);
  }
  static void decode_add(const Tile& /*tile*/, const std::uint8_t* in, std::uint32_t count, float* values) {
    decode_all<true>(in, count, values);
  }

  static void narrow(const float* values, std::uint32_t count, std::uint8_t* out) {
    const std::uint32_t whole = whole_lanes(count);
    for (std::size_t i = 0; i < whole; i += lanes()) {
      Lanes::store(Lanes::stored(hn::LoadU(F32(), values + i)), out + i * kBytes);
    }
    Core::narrow(values + whole, count - whole, out + whole * kBytes);
  }

 protected:
  static HWY_INLINE std::uint32_t whole_lanes(std::uint32_t count) {
    return count - count % static_cast<std::uint32_t>(lanes());
  }

 private:
  template <bool kResidual>
  static HWY_INLINE bool encode_all(const float* values, Residual residual, std::uint32_t count, std::uint8_t* out) {
    const F32 df;
    const U32 d;
    const VU32 exponent = hn::Set(d, Core::Wire::kExponent);
    auto bad = hn::MaskFromVec(hn::Zero(d));
    const std::uint32_t whole = whole_lanes(count);
    for (std::size_t i = 0; i < whole; i += lanes()) {
      VF32 x = hn::LoadU(df, values + i);
      if constexpr (kResidual) {
        x = x + hn::LoadU(df, residual.before + i);
      }
      const VU32 bits = Lanes::stored(x);
      Lanes::store(bits, out + i * kBytes);
      const auto nonfinite = hn::Eq(hn::And(bits, exponent), exponent);
      bad = hn::Or(bad, nonfinite);
      if constexpr (kResidual) {
        const VF32 left = x - Lanes::value(bits);
        const VF32 old = hn::LoadU(df, residual.before + i);
        hn::StoreU(hn::IfThenElse(hn::RebindMask(df, nonfinite), old, left), df, residual.after + i);
      }
    }
    const bool tail = Core::encode_from(whole, values, residual, count, out);
    return !hn::AllFalse(d, bad) || tail;
  }

  template <bool kAdd>
  static HWY_INLINE void decode_all(const std::uint8_t* in, std::uint32_t count, float* values) {
    const F32 df;
    const std::uint32_t whole = whole_lanes(count);
    for (std::size_t i = 0; i < whole; i += lanes()) {
      VF32 x = Lanes::value(Lanes::load(in + i * kBytes));
      if constexpr (kAdd) {
        x = hn::LoadU(df, values + i) + x;
      }
      hn::StoreU(x, df, values + i);
    }
    for (std::uint32_t i = whole; i < count; ++i) {
      const float x = Core::Wire::value(kernels::load<typename Core::Stored>(in, i));
      values[i] = kAdd ? values[i] + x : x;
    }
  }
};

}  // namespace gradwire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR
#endif  // toggle
