// Loads and stores the elements of a job where they lie in several tensors (PieceTable in kernels/device/jobs.hpp). A
// strip that lies in one tensor is loaded and stored as in an array; one with a border in it is taken element by
// element.
#ifndef GRADWIRE_KERNELS_DEVICE_PIECES_HPP
#define GRADWIRE_KERNELS_DEVICE_PIECES_HPP

#include "kernels/device/jobs.hpp"
#include "kernels/device/strip.hpp"

namespace gradwire::kernels {

/// Holds elements [begin, end) of a strip, which lie beside each other.
struct StripPart {
  const Piece* piece;   // null: the whole strip lies in the job's array
  std::uint8_t* array;  // null: zeros
  std::uint64_t first;  // of element `begin` in the array
  std::uint32_t begin;
  std::uint32_t end;
};

/// Returns the number of the piece that has the element.
GRADWIRE_DEVICE std::uint32_t piece_at(const PieceTable& table, std::uint64_t element) {
  std::uint32_t low = 0;
  std::uint32_t high = table.count;
  GRADWIRE_ROLLED
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (table.pieces[middle].begin <= element ? low : high) = middle;
  }
  return low;
}

/// Returns the first part of the strip that begins at element `first` of the job and has `left` elements, if not more.
GRADWIRE_DEVICE StripPart strip_part(const void* array, const PieceTable& table, std::uint64_t first,
                                     std::uint32_t left) {
  if (table.count == 0) {
    return {nullptr, static_cast<std::uint8_t*>(const_cast<void*>(array)), first, 0, left};
  }
  const std::uint64_t element = table.first + first;
  const Piece* piece = table.pieces + piece_at(table, element);
  const std::uint64_t room = piece[1].begin - element;
  const std::uint32_t wanted = left < kStrip ? left : kStrip;
  return {piece, piece->tensor, element - piece->begin, 0, room < wanted ? static_cast<std::uint32_t>(room) : wanted};
}

/// Returns the next part of a strip of `left` elements, if not more.
GRADWIRE_DEVICE StripPart next_part(const StripPart& part, std::uint32_t left) {
  const Piece* piece = part.piece + 1;
  const std::uint64_t room = piece[1].begin - piece->begin;
  const std::uint32_t wanted = (left < kStrip ? left : kStrip) - part.end;
  return {piece, piece->tensor, 0, part.end, part.end + (room < wanted ? static_cast<std::uint32_t>(room) : wanted)};
}

/// Returns whether elements of the strip lie behind the part.
GRADWIRE_DEVICE bool goes_on(const StripPart& part, std::uint32_t left) {
  return part.piece != nullptr && part.end < kStrip && part.end < left;
}

template <class Stored>
GRADWIRE_DEVICE Stored* address_of(const StripPart& part) {
  return reinterpret_cast<Stored*>(part.array) + part.first;
}

template <class Stored>
GRADWIRE_DEVICE bool whole_and_aligned(const StripPart& part) {
  return part.end >= kStrip && part.array != nullptr && aligned_to(address_of<Stored>(part), kQuadAccess<Stored>);
}

template <class Stored>
GRADWIRE_DEVICE Packed<Stored> load_packed(StripPart part, std::uint32_t left) {
  Packed<Stored> packed;
  if (whole_and_aligned<Stored>(part)) {
    load_whole(static_cast<const Stored*>(address_of<Stored>(part)), packed);
    return packed;
  }
  clear(packed);
  GRADWIRE_ROLLED
  for (;; part = next_part(part, left)) {
    if (part.array != nullptr) {
      load_some(static_cast<const Stored*>(address_of<Stored>(part)), SomeElements{part.begin, part.end}, packed);
    }
    if (!goes_on(part, left)) {
      return packed;
    }
  }
}

template <class Stored>
GRADWIRE_DEVICE void store_elements(StripPart part, std::uint32_t left, const Stored (&x)[kHeld]) {
  if (whole_and_aligned<Stored>(part)) {
    store_whole(address_of<Stored>(part), x);
    return;
  }
  GRADWIRE_ROLLED
  for (;; part = next_part(part, left)) {
    store_some(address_of<Stored>(part), SomeElements{part.begin, part.end}, x);
    if (!goes_on(part, left)) {
      return;
    }
  }
}

/// A job whose elements lie in pieces. Kernels over pieces are others than those over arrays, which take fewer
/// registers.
template <class Job>
struct InPieces : Job {};
template <class Job>
inline constexpr bool kInPieces = false;
template <class Job>
inline constexpr bool kInPieces<InPieces<Job>> = true;

/// Does what load_values() does over an array.
template <class Value>
GRADWIRE_DEVICE void load_values(const StripPart& part, DType dtype, std::uint32_t left, Value (&x)[kHeld]) {
  if constexpr (sizeof(Value) == 8) {
    load_as<DType::f64>(part, left, x);
  } else if (dtype == DType::f32) {
    load_as<DType::f32>(part, left, x);
  } else if (dtype == DType::f16) {
    load_as<DType::f16>(part, left, x);
  } else if (dtype == DType::bf16) {
    load_as<DType::bf16>(part, left, x);
  } else {
    load_as<DType::f64>(part, left, x);
  }
}

template <class Value>
GRADWIRE_DEVICE bool store_values(const StripPart& part, DType dtype, std::uint32_t left, const Value (&x)[kHeld]) {
  if constexpr (sizeof(Value) == 8) {
    return store_as<DType::f64>(part, left, x);
  } else if (dtype == DType::f32) {
    return store_as<DType::f32>(part, left, x);
  } else if (dtype == DType::f16) {
    return store_as<DType::f16>(part, left, x);
  } else if (dtype == DType::bf16) {
    return store_as<DType::bf16>(part, left, x);
  } else {
    return store_as<DType::f64>(part, left, x);
  }
}

/// x <- a strip of the job's elements, which lie in `array` or in the pieces of `table`.
template <class Job, class Value>
GRADWIRE_DEVICE void load_strip_of(const void* array, const PieceTable& table, DType dtype, std::uint64_t first,
                                   std::uint32_t left, Value (&x)[kHeld]) {
  if constexpr (kInPieces<Job>) {
    load_values(strip_part(array, table, first, left), dtype, left, x);
  } else {
    load_values(array, dtype, first, left, x);
  }
}

/// Returns whether all stored elements are finite.
template <class Job, class Value>
GRADWIRE_DEVICE bool store_strip_of(void* array, const PieceTable& table, DType dtype, std::uint64_t first,
                                    std::uint32_t left, const Value (&x)[kHeld]) {
  if constexpr (kInPieces<Job>) {
    return store_values(strip_part(array, table, first, left), dtype, left, x);
  } else {
    return store_values(array, dtype, first, left, x);
  }
}

/// Returns the address of one element of the job.
template <class Stored>
GRADWIRE_DEVICE Stored* element_at(void* array, const PieceTable& table, std::uint64_t element) {
  if (table.count == 0) {
    return static_cast<Stored*>(array) + element;
  }
  const Piece& piece = table.pieces[piece_at(table, table.first + element)];
  return reinterpret_cast<Stored*>(piece.tensor) + (table.first + element - piece.begin);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_PIECES_HPP
