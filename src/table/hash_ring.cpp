#include "table/hash_ring.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace gradwire::table {

HashRing::HashRing(int ranks, std::uint32_t virtual_nodes) {
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t node = 0; node < virtual_nodes; ++node) {
      places_.push_back({mix(mix(static_cast<std::uint64_t>(rank)) + node), rank});
    }
  }
  std::sort(places_.begin(), places_.end(),
            [](const Place& a, const Place& b) { return a.hash != b.hash ? a.hash < b.hash : a.rank < b.rank; });
  const auto bits = static_cast<unsigned>(std::bit_width(places_.size()));
  shift_ = 64 - bits;
  std::uint32_t place = 0;
  for (std::uint64_t top = 0; top < std::uint64_t{1} << bits; ++top) {
    while (place < places_.size() && places_[place].hash >> shift_ < top) {
      ++place;
    }
    first_.push_back(place);
  }
}

int HashRing::owner(std::uint64_t id) const noexcept {
  const std::uint64_t hash = mix(id ^ 0x5851F42D4C957F2DU);  // apart from the places' own
  std::size_t place = first_[hash >> shift_];
  while (place < places_.size() && places_[place].hash < hash) {
    ++place;
  }
  return places_[place < places_.size() ? place : 0].rank;
}

}  // namespace gradwire::table
