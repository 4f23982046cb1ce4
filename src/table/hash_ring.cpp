#include "table/hash_ring.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace gradwire::table {
namespace {

std::vector<std::uint32_t> numbers_of(int ranks) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(ranks));
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

}  // namespace

HashRing::HashRing(int ranks, std::uint32_t virtual_nodes) : HashRing(numbers_of(ranks), virtual_nodes) {}

HashRing::HashRing(std::span<const std::uint32_t> keys, std::uint32_t virtual_nodes) {
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    for (std::uint32_t node = 0; node < virtual_nodes; ++node) {
      places_.push_back({mix(mix(keys[rank]) + node), static_cast<int>(rank)});
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

std::size_t HashRing::place_of(std::uint64_t id) const noexcept {
  const std::uint64_t hash = mix(id ^ 0x5851F42D4C957F2DU);  // independent of the places' hashes
  std::size_t place = first_[hash >> shift_];
  while (place < places_.size() && places_[place].hash < hash) {
    ++place;
  }
  return place < places_.size() ? place : 0;
}

}  // namespace gradwire::table
