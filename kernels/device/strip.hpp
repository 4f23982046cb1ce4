// A strip is 256 consecutive elements of a tile, which a warp holds in registers, 8 values a lane. Register 4 h + c of
// a lane has element 128 h + 4 lane + c, so that four of them are one access of 16 bytes and a warp's accesses are
// whole lines. Elements behind the end of a short tile are zeros that nobody stores.
#ifndef GRADWIRE_KERNELS_DEVICE_STRIP_HPP
#define GRADWIRE_KERNELS_DEVICE_STRIP_HPP

#include "gradwire/dtype.hpp"
#include "kernels/device/simt.hpp"
#include "kernels/elements.hpp"
#include "kernels/tile.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kStrip = 256;
inline constexpr int kHeld = 8;  // values that a lane holds

GRADWIRE_DEVICE std::uint32_t strips(std::uint32_t count) { return (count + kStrip - 1) / kStrip; }

/// Returns the element of the strip that lies in register `r` of this lane.
GRADWIRE_DEVICE std::uint32_t element_of(std::uint32_t lane, int r) {
  return 128U * static_cast<std::uint32_t>(r / 4) + 4 * lane + static_cast<std::uint32_t>(r % 4);
}

/// Elements [0, end) of a strip. Which registers of a lane hold one is seen by comparing numbers that the compiler
/// knows with one number of the lane, so that registers hold no number for each.
struct FirstElements {
  std::uint32_t end;
  [[nodiscard]] GRADWIRE_DEVICE bool has(int r) const {
    return 128 * (r / 4) + r % 4 < static_cast<int>(end) - 4 * static_cast<int>(simt::lane());
  }
  [[nodiscard]] GRADWIRE_DEVICE std::uint32_t index(int r) const { return element_of(simt::lane(), r); }
};
/// Elements [begin, end) of a strip.
struct SomeElements {
  std::uint32_t begin;
  std::uint32_t end;
  [[nodiscard]] GRADWIRE_DEVICE bool has(int r) const { return index(r) < end - begin; }
  [[nodiscard]] GRADWIRE_DEVICE std::uint32_t index(int r) const {
    return (4 * simt::lane() - begin) + static_cast<std::uint32_t>(128 * (r / 4) + r % 4);
  }
};

GRADWIRE_DEVICE bool aligned_to(const void* address, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// One tile of a job: its place in the job's arrays, and the tile as codecs see it.
struct TilePlace {
  Tile tile;
  std::uint64_t first;  // its first element in the job's arrays
  std::uint32_t count;  // elements, 1 to kTileElements
};

/// Four consecutive elements as they lie in memory.
template <class Stored>
struct Quad {
  Stored element[4];
};

GRADWIRE_DEVICE void store_quad(std::uint8_t* to, const Quad<std::uint8_t>& quad) {
  simt::store4(to, bits_as<std::uint32_t>(quad));
}
GRADWIRE_DEVICE void store_quad(std::uint16_t* to, const Quad<std::uint16_t>& quad) {
  simt::store8(to, bits_as<simt::Words2>(quad));
}
GRADWIRE_DEVICE void store_quad(std::uint32_t* to, const Quad<std::uint32_t>& quad) {
  simt::store16(to, bits_as<simt::Words4>(quad));
}
GRADWIRE_DEVICE void store_quad(std::uint64_t* to, const Quad<std::uint64_t>& quad) {
  struct Halves {
    simt::Words4 half[2];
  };
  const auto halves = bits_as<Halves>(quad);
  simt::store16(to, halves.half[0]);
  simt::store16(to + 2, halves.half[1]);
}

/// One element of an array that is aligned to its type.
template <class Stored>
GRADWIRE_DEVICE Stored load_one(const Stored* from) {
  if constexpr (sizeof(Stored) == 8) {
    return bits_as<Stored>(simt::load8(from));
  } else if constexpr (sizeof(Stored) == 4) {
    return simt::load4(from);
  } else if constexpr (sizeof(Stored) == 2) {
    return simt::load2(from);
  } else {
    return simt::load1(from);
  }
}
template <class Stored>
GRADWIRE_DEVICE void store_one(Stored* to, Stored value) {
  if constexpr (sizeof(Stored) == 8) {
    simt::store8(to, bits_as<simt::Words2>(value));
  } else if constexpr (sizeof(Stored) == 4) {
    simt::store4(to, value);
  } else if constexpr (sizeof(Stored) == 2) {
    simt::store2(to, value);
  } else {
    simt::store1(to, value);
  }
}

/// One access to four elements has at most so many bytes.
template <class Stored>
inline constexpr std::uint32_t kQuadAccess = sizeof(Stored) >= 4 ? 16 : 4 * sizeof(Stored);

/// A lane's part of a strip as it lies in memory, in words, so that nothing waits for a load until they are unpacked.
template <class Stored>
struct Packed {
  static constexpr int kWords = static_cast<int>(kHeld * sizeof(Stored) / 4);
  std::uint32_t word[kWords];

  [[nodiscard]] GRADWIRE_DEVICE Stored element(int r) const {
    if constexpr (sizeof(Stored) == 8) {
      return std::uint64_t{word[2 * r]} | std::uint64_t{word[2 * r + 1]} << 32;
    } else {
      constexpr int kEach = 4 / static_cast<int>(sizeof(Stored));
      return static_cast<Stored>(word[r / kEach] >> (8 * sizeof(Stored) * static_cast<unsigned>(r % kEach)));
    }
  }
};

/// Loads four elements, which are 4, 8, 16 or 32 bytes.
GRADWIRE_DEVICE void load_quad(const std::uint8_t* from, std::uint32_t* words) { words[0] = simt::load4(from); }
GRADWIRE_DEVICE void load_quad(const std::uint16_t* from, std::uint32_t* words) {
  const simt::Words2 two = simt::load8(from);
  words[0] = two.word[0];
  words[1] = two.word[1];
}
GRADWIRE_DEVICE void load_quad(const std::uint32_t* from, std::uint32_t* words) {
  const simt::Words4 four = simt::load16(from);
  GRADWIRE_UNROLL
  for (int i = 0; i < 4; ++i) {
    words[i] = four.word[i];
  }
}
GRADWIRE_DEVICE void load_quad(const std::uint64_t* from, std::uint32_t* words) {
  load_quad(reinterpret_cast<const std::uint32_t*>(from), words);
  load_quad(reinterpret_cast<const std::uint32_t*>(from + 2), words + 4);
}

/// Loads a whole strip that is aligned to its accesses.
template <class Stored>
GRADWIRE_DEVICE void load_whole(const Stored* from, Packed<Stored>& packed) {
  GRADWIRE_UNROLL
  for (int h = 0; h < 2; ++h) {
    load_quad(from + element_of(simt::lane(), 4 * h), packed.word + h * Packed<Stored>::kWords / 2);
  }
}

/// Loads elements [begin, end) of a strip one by one, of which the first lies at `from`; the others must be zeros.
template <class Stored, class Which>
GRADWIRE_DEVICE void load_some(const Stored* from, const Which& which, Packed<Stored>& packed) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    const Stored x = which.has(r) ? load_one(from + which.index(r)) : Stored{0};
    if constexpr (sizeof(Stored) == 8) {
      packed.word[2 * r] |= static_cast<std::uint32_t>(x);
      packed.word[2 * r + 1] |= static_cast<std::uint32_t>(x >> 32);
    } else {
      constexpr int kEach = 4 / static_cast<int>(sizeof(Stored));
      packed.word[r / kEach] |= std::uint32_t{x} << (8 * sizeof(Stored) * static_cast<unsigned>(r % kEach));
    }
  }
}

template <class Stored>
GRADWIRE_DEVICE void clear(Packed<Stored>& packed) {
  GRADWIRE_UNROLL
  for (int w = 0; w < Packed<Stored>::kWords; ++w) {
    packed.word[w] = 0;
  }
}

/// Loads the strip at `from`, which has `left` elements; zeros stand behind them. The address may be any multiple of an
/// element's size.
template <class Stored>
GRADWIRE_DEVICE Packed<Stored> load_packed(const std::uint8_t* from, std::uint32_t left) {
  Packed<Stored> packed;
  if (left >= kStrip && aligned_to(from, kQuadAccess<Stored>)) {
    load_whole(reinterpret_cast<const Stored*>(from), packed);
    return packed;
  }
  clear(packed);
  load_some(reinterpret_cast<const Stored*>(from), FirstElements{left}, packed);
  return packed;
}

/// Where is an address, or a StripPart.
template <class Stored, class Where>
GRADWIRE_DEVICE void load_elements(const Where& from, std::uint32_t left, Stored (&x)[kHeld]) {
  const Packed<Stored> packed = load_packed<Stored>(from, left);
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    x[r] = packed.element(r);
  }
}

/// Returns the low bits of each register.
template <class Stored>
GRADWIRE_DEVICE Packed<Stored> pack(const std::uint32_t (&x)[kHeld]) {
  Packed<Stored> packed;
  GRADWIRE_UNROLL
  for (int w = 0; w < Packed<Stored>::kWords; ++w) {
    if constexpr (sizeof(Stored) == 1) {
      packed.word[w] = simt::permute(simt::permute(x[4 * w], x[4 * w + 1], 0x0040U),
                                     simt::permute(x[4 * w + 2], x[4 * w + 3], 0x0040U), 0x5410U);
    } else {
      static_assert(sizeof(Stored) == 2);
      packed.word[w] = simt::permute(x[2 * w], x[2 * w + 1], 0x5410U);
    }
  }
  return packed;
}

GRADWIRE_DEVICE void store_words(std::uint8_t* to, const Packed<std::uint8_t>& packed) {
  simt::store4(to + 4 * simt::lane(), packed.word[0]);
  simt::store4(to + 128 + 4 * simt::lane(), packed.word[1]);
}
GRADWIRE_DEVICE void store_words(std::uint8_t* to, const Packed<std::uint16_t>& packed) {
  simt::store8(to + 8 * simt::lane(), {{packed.word[0], packed.word[1]}});
  simt::store8(to + 256 + 8 * simt::lane(), {{packed.word[2], packed.word[3]}});
}

template <class Stored>
GRADWIRE_DEVICE void store_packed(std::uint8_t* to, std::uint32_t left, const Packed<Stored>& packed) {
  if (left >= kStrip && aligned_to(to, kQuadAccess<Stored>)) {
    store_words(to, packed);
    return;
  }
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    if (const FirstElements which{left}; which.has(r)) {
      store_one(reinterpret_cast<Stored*>(to) + which.index(r), packed.element(r));
    }
  }
}

/// Stores a whole strip that is aligned to its accesses.
template <class Stored>
GRADWIRE_DEVICE void store_whole(Stored* to, const Stored (&x)[kHeld]) {
  GRADWIRE_UNROLL
  for (int h = 0; h < 2; ++h) {
    Quad<Stored> quad;
    GRADWIRE_UNROLL
    for (int c = 0; c < 4; ++c) {
      quad.element[c] = x[4 * h + c];
    }
    store_quad(to + element_of(simt::lane(), 4 * h), quad);
  }
}

/// Stores elements [begin, end) of a strip one by one, the first of them at `to`.
template <class Stored, class Which>
GRADWIRE_DEVICE void store_some(Stored* to, const Which& which, const Stored (&x)[kHeld]) {
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    if (which.has(r)) {
      store_one(to + which.index(r), x[r]);
    }
  }
}

template <class Stored>
GRADWIRE_DEVICE void store_elements(std::uint8_t* to, std::uint32_t left, const Stored (&x)[kHeld]) {
  if (left >= kStrip && aligned_to(to, kQuadAccess<Stored>)) {
    store_whole(reinterpret_cast<Stored*>(to), x);
  } else {
    store_some(reinterpret_cast<Stored*>(to), FirstElements{left}, x);
  }
}

/// Does the same over working values; the stored elements have the type kType.
template <DType kType, class Where, class Value>
GRADWIRE_DEVICE void load_as(const Where& from, std::uint32_t left, Value (&x)[kHeld]) {
  typename Element<kType>::Stored stored[kHeld];
  load_elements(from, left, stored);
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    x[r] = static_cast<Value>(Element<kType>::value(stored[r]));
  }
}

/// Returns whether all stored elements are finite.
template <DType kType, class Where, class Value>
GRADWIRE_DEVICE bool store_as(const Where& to, std::uint32_t left, const Value (&x)[kHeld]) {
  using E = Element<kType>;
  typename E::Stored stored[kHeld];
  bool finite = true;
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    stored[r] = E::stored(static_cast<typename E::Value>(x[r]));
    finite = finite && (stored[r] & E::kExponent) != E::kExponent;
  }
  store_elements(to, left, stored);
  return finite;
}

GRADWIRE_HOST_DEVICE constexpr bool half_width(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// Loads the strip of a tensor from element `first` on; f64 working values lie in f64 tensors only.
template <class Value>
GRADWIRE_DEVICE void load_values(const void* values, DType dtype, std::uint64_t first, std::uint32_t left,
                                 Value (&x)[kHeld]) {
  const auto* bytes = static_cast<const std::uint8_t*>(values);
  if constexpr (sizeof(Value) == 8) {
    load_as<DType::f64>(bytes + first * 8, left, x);
  } else if (dtype == DType::f32) {
    load_as<DType::f32>(bytes + first * 4, left, x);
  } else if (dtype == DType::f16) {
    load_as<DType::f16>(bytes + first * 2, left, x);
  } else if (dtype == DType::bf16) {
    load_as<DType::bf16>(bytes + first * 2, left, x);
  } else {
    load_as<DType::f64>(bytes + first * 8, left, x);
  }
}

template <class Value>
GRADWIRE_DEVICE bool store_values(void* values, DType dtype, std::uint64_t first, std::uint32_t left,
                                  const Value (&x)[kHeld]) {
  auto* bytes = static_cast<std::uint8_t*>(values);
  if constexpr (sizeof(Value) == 8) {
    return store_as<DType::f64>(bytes + first * 8, left, x);
  } else if (dtype == DType::f32) {
    return store_as<DType::f32>(bytes + first * 4, left, x);
  } else if (dtype == DType::f16) {
    return store_as<DType::f16>(bytes + first * 2, left, x);
  } else if (dtype == DType::bf16) {
    return store_as<DType::bf16>(bytes + first * 2, left, x);
  } else {
    return store_as<DType::f64>(bytes + first * 8, left, x);
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_STRIP_HPP
