// Arithmetic over working values and checks of elements: loops that every compiler turns into SIMD. Each element is
// rounded once.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "codec/codec.hpp"
#include "codec/float_environment.hpp"
#include "codec/registry.hpp"

namespace gradwire::codec {
namespace {

constexpr int kSafeExponent = 100;  // the reciprocal of such a power of two is exact in every working type

template <class Body>
void with_type(Working type, Body body) {
  const FloatEnvironment environment;
  if (type == Working::f64) {
    body(double{});
  } else {
    body(float{});
  }
}

// The loop neither ends early nor adds up bools, so that it stays SIMD; almost every array is finite anyway.
template <class Bits>
bool no_exponent_is_full(const void* elements, std::uint64_t count, Bits exponent) {
  const auto* bytes = static_cast<const std::byte*>(elements);
  Bits full = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    full |= static_cast<Bits>((bits & exponent) == exponent ? 1 : 0);
  }
  return full == 0;
}

}  // namespace

bool all_finite(DType dtype, const void* elements, std::uint64_t count) {
  switch (dtype) {
    case DType::f16: return no_exponent_is_full<std::uint16_t>(elements, count, 0x7C00U);
    case DType::bf16: return no_exponent_is_full<std::uint16_t>(elements, count, 0x7F80U);
    case DType::f64: return no_exponent_is_full<std::uint64_t>(elements, count, 0x7FF0000000000000ULL);
    case DType::f32: break;
  }
  return no_exponent_is_full<std::uint32_t>(elements, count, 0x7F800000U);
}

bool all_finite(Working type, const void* values, std::uint64_t count) {
  return all_finite(type == Working::f64 ? DType::f64 : DType::f32, values, count);
}

void add(Working type, void* accumulator, const void* values, std::uint64_t count) {
  with_type(type, [=](auto zero) {
    using T = decltype(zero);
    auto* sum = static_cast<T*>(accumulator);
    const auto* x = static_cast<const T*>(values);
    for (std::uint64_t i = 0; i < count; ++i) {
      sum[i] += x[i];
    }
  });
}

void multiply(Working type, const void* values, double factor, void* out, std::uint64_t count) {
  with_type(type, [=](auto zero) {
    using T = decltype(zero);
    const auto f = static_cast<T>(factor);
    const auto* x = static_cast<const T*>(values);
    auto* y = static_cast<T*>(out);
    for (std::uint64_t i = 0; i < count; ++i) {
      y[i] = x[i] * f;
    }
  });
}

void divide(Working type, void* values, double divisor, std::uint64_t count) {
  int exponent = 0;
  if (std::frexp(divisor, &exponent) == 0.5 && std::abs(exponent) < kSafeExponent) {
    // A product takes half the time of a quotient, and here both round the same number once.
    multiply(type, values, std::ldexp(1.0, 1 - exponent), values, count);
    return;
  }
  with_type(type, [=](auto zero) {
    using T = decltype(zero);
    const auto d = static_cast<T>(divisor);
    auto* x = static_cast<T*>(values);
    for (std::uint64_t i = 0; i < count; ++i) {
      x[i] /= d;
    }
  });
}

void round_to_bf16(kernels::RoundingKey key, std::uint32_t index, const float* values, std::uint64_t count,
                   std::uint16_t* out) {
  active_instruction_set().residuals.to_bf16(key, index, values, count, out);
}

void widen_bf16(const std::uint16_t* in, std::uint64_t count, float* values) {
  active_instruction_set().residuals.from_bf16(in, count, values);
}

void round_to_int8(kernels::RoundingKey key, std::uint32_t index, const float* values, std::uint64_t blocks,
                   std::uint8_t* out) {
  active_instruction_set().residuals.to_int8(key, index, values, blocks, out);
}

void widen_int8(const std::uint8_t* in, std::uint64_t blocks, float* values) {
  active_instruction_set().residuals.from_int8(in, blocks, values);
}

}  // namespace gradwire::codec
