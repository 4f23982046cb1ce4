// Codecs that keep each element by itself in a float type: bf16 for any tensor, and exact in the tensor's own type.
// Payload of a tile: the elements, in order; zeros up to 16 bytes. NaN and Inf travel element by element.
#ifndef GRADWIRE_KERNELS_CAST_HPP
#define GRADWIRE_KERNELS_CAST_HPP

#include "kernels/elements.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

template <DType kWire>
struct CastCore {
  using Wire = Element<kWire>;
  using Stored = typename Wire::Stored;
  using Value = typename Wire::Value;

  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t used_bytes(std::uint32_t count) {
    return count * static_cast<std::uint32_t>(sizeof(Stored));
  }
  GRADWIRE_HOST_DEVICE static constexpr std::uint32_t tile_bytes(std::uint32_t /*k*/, std::uint32_t count) {
    return padded(used_bytes(count));
  }

  GRADWIRE_HOST_DEVICE static bool encode(const Tile& /*tile*/, const Value* values, float* residual,
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

  /// Values as elements of the wire type, without padding.
  GRADWIRE_HOST_DEVICE static void narrow(const Value* values, std::uint32_t count, std::uint8_t* out) {
    for (std::uint32_t i = 0; i < count; ++i) {
      store(out, i, Wire::stored(values[i]));
    }
  }

  /// Elements [first, count).
  GRADWIRE_HOST_DEVICE static bool encode_from(std::uint32_t first, const Value* values, float* residual,
                                               std::uint32_t count, std::uint8_t* out) {
    bool nonfinite = false;
    for (std::uint32_t i = first; i < count; ++i) {
      const Value x = residual == nullptr ? values[i] : values[i] + static_cast<Value>(residual[i]);
      const Stored bits = Wire::stored(x);
      store(out, i, bits);
      const bool finite = (bits & Wire::kExponent) != Wire::kExponent;
      nonfinite = nonfinite || !finite;
      if (residual != nullptr && finite) {
        residual[i] = static_cast<float>(x - Wire::value(bits));
      }
    }
    return nonfinite;
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_CAST_HPP
