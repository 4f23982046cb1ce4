// Reads and writes values as they lie in slots, and has functions over the lanes of a warp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tests/support/ptx/machine.hpp"

namespace gradwire::ptx {

/// Calls body(lane) for each lane of a mask, in ascending order.
template <class Body>
void for_each_lane(std::uint32_t lanes, Body body) {
  for (; lanes != 0; lanes &= lanes - 1) {
    body(static_cast<std::uint32_t>(std::countr_zero(lanes)));
  }
}

/// Gives all lanes the same value.
inline void put_same(Warp& warp, const Instruction& i, std::uint32_t lanes, std::uint64_t value) {
  std::uint64_t result[32];
  std::fill(result, result + 32, value);
  warp.put(i.operand[0], lanes, result);
}

template <class T>
T value_of(std::uint64_t slot) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(slot));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(slot);
  } else {
    return static_cast<T>(slot);
  }
}

template <class T>
std::uint64_t slot_of(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::isnan(value) ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

template <class D, class A, class F>
void unary(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.in(i.operand[1]);
  std::uint64_t result[32];
  for (int l = 0; l < 32; ++l) {
    result[l] = slot_of<D>(F{}(value_of<A>(a[l])));
  }
  warp.put(i.operand[0], lanes, result);
}

template <class D, class A, class B, class F>
void binary(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.in(i.operand[1]);
  const std::uint64_t* const b = warp.in(i.operand[2]);
  std::uint64_t result[32];
  for (int l = 0; l < 32; ++l) {
    result[l] = slot_of<D>(F{}(value_of<A>(a[l]), value_of<B>(b[l])));
  }
  warp.put(i.operand[0], lanes, result);
}

template <class D, class A, class B, class C, class F>
void ternary(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.in(i.operand[1]);
  const std::uint64_t* const b = warp.in(i.operand[2]);
  const std::uint64_t* const c = warp.in(i.operand[3]);
  std::uint64_t result[32];
  for (int l = 0; l < 32; ++l) {
    result[l] = slot_of<D>(F{}(value_of<A>(a[l]), value_of<B>(b[l]), value_of<C>(c[l])));
  }
  warp.put(i.operand[0], lanes, result);
}

}  // namespace gradwire::ptx
