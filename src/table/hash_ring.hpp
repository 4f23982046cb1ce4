// Assigns rows to ranks by consistent hashing with virtual nodes (Karger et al., STOC 1997). Each rank has many places
// on a ring of 2^64; a row belongs to the rank of the first place at or after its hash. An additional rank takes about
// 1/N of the rows, evenly from all others, and moves none between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradwire::table {

/// A bijection that mixes all bits (the finaliser of SplitMix64; Steele et al., OOPSLA 2014).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

class HashRing {
 public:
  /// The shares of ranks differ by about 1/sqrt of this number. Saved tables do not depend on it.
  static constexpr std::uint32_t kVirtualNodes = 512;

  explicit HashRing(int ranks, std::uint32_t virtual_nodes = kVirtualNodes);
  /// Places follow from the ranks' `keys`, which are ascending, and not from their numbers: a rank that keeps its key
  /// keeps its places.
  explicit HashRing(std::span<const std::uint32_t> keys, std::uint32_t virtual_nodes = kVirtualNodes);
  [[nodiscard]] int owner(std::uint64_t id) const noexcept { return places_[place_of(id)].rank; }

  // Places in the order of the ring.
  [[nodiscard]] std::size_t places() const noexcept { return places_.size(); }
  [[nodiscard]] int rank_at(std::size_t place) const noexcept { return places_[place].rank; }
  /// The first place at or after the row's hash.
  [[nodiscard]] std::size_t place_of(std::uint64_t id) const noexcept;

 private:
  struct Place {
    std::uint64_t hash;
    int rank;
  };
  std::vector<Place> places_;         // by hash
  std::vector<std::uint32_t> first_;  // by the top bits of a hash: the first place that may match
  unsigned shift_ = 0;
};

}  // namespace gradwire::table
