// add, multiply and divide over working values: loops that every compiler turns into SIMD, each element rounding once.
#include "codec/codec.hpp"
#include "codec/float_environment.hpp"

namespace gradwire::codec {
namespace {

template <class Body>
void with_type(Working type, Body body) {
  const FloatEnvironment environment;
  if (type == Working::f64) {
    body(double{});
  } else {
    body(float{});
  }
}

}  // namespace

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
  with_type(type, [=](auto zero) {
    using T = decltype(zero);
    const auto d = static_cast<T>(divisor);
    auto* x = static_cast<T*>(values);
    for (std::uint64_t i = 0; i < count; ++i) {
      x[i] /= d;
    }
  });
}

}  // namespace gradwire::codec
