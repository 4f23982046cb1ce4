// Element types of tensors: how each is stored, which working type it has, and the conversions between the two.
#ifndef GRADWIRE_KERNELS_ELEMENTS_HPP
#define GRADWIRE_KERNELS_ELEMENTS_HPP

#include "gradwire/dtype.hpp"
#include "kernels/numeric.hpp"

namespace gradwire::kernels {

template <DType>
struct Element;

template <>
struct Element<DType::f32> {
  using Stored = std::uint32_t;
  using Value = float;
  static constexpr Stored kExponent = 0x7F800000U;  // all ones in Inf and NaN
  GRADWIRE_HOST_DEVICE static Stored stored(Value x) { return bits_as<Stored>(x); }
  GRADWIRE_HOST_DEVICE static Value value(Stored bits) { return bits_as<Value>(bits); }
};

template <>
struct Element<DType::f64> {
  using Stored = std::uint64_t;
  using Value = double;
  static constexpr Stored kExponent = 0x7FF0000000000000U;
  GRADWIRE_HOST_DEVICE static Stored stored(Value x) { return bits_as<Stored>(x); }
  GRADWIRE_HOST_DEVICE static Value value(Stored bits) { return bits_as<Value>(bits); }
};

template <>
struct Element<DType::f16> {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr Stored kExponent = 0x7C00U;
  GRADWIRE_HOST_DEVICE static Stored stored(Value x) { return to_f16(x); }
  GRADWIRE_HOST_DEVICE static Value value(Stored bits) { return from_f16(bits); }
};

template <>
struct Element<DType::bf16> {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr Stored kExponent = 0x7F80U;
  GRADWIRE_HOST_DEVICE static Stored stored(Value x) { return to_bf16(x); }
  GRADWIRE_HOST_DEVICE static Value value(Stored bits) { return from_bf16(bits); }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_ELEMENTS_HPP
