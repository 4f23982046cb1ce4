// Counts how often rows are asked for in a fixed memory, however many rows there are: a count-min sketch (Cormode and
// Muthukrishnan, J. Algorithms 2005) with conservative update (Estan and Varghese, SIGCOMM 2002).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "table/hash_ring.hpp"

namespace gradwire::table {

class RowSketch {
 public:
  static constexpr std::size_t kHashes = 4;
  static constexpr std::size_t kCounters = 2048;  // of each hash

  /// The seed chooses the hashes: the same ids in the same order are then counted alike.
  explicit RowSketch(std::uint64_t seed) : seed_(mix(seed)), counters_(kHashes * kCounters) {}

  /// Counts a row `times` times, and returns estimate().
  std::uint64_t add(std::uint64_t id, std::uint64_t times) noexcept {
    total_ += times;
    const std::uint64_t counted = estimate(id) + times;
    for (const std::size_t counter : counters_of(id)) {
      counters_[counter] = std::max(counters_[counter], counted);
    }
    return counted;
  }
  /// Returns at least the row's count. With a probability of 98% it is at most total() x e / kCounters more.
  [[nodiscard]] std::uint64_t estimate(std::uint64_t id) const noexcept {
    std::uint64_t least = ~std::uint64_t{0};
    for (const std::size_t counter : counters_of(id)) {
      least = std::min(least, counters_[counter]);
    }
    return least;
  }
  /// The sum of all counts.
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  /// Halves all counts, so that old ones fade.
  void halve() noexcept {
    for (std::uint64_t& counter : counters_) {
      counter /= 2;
    }
    total_ /= 2;
  }

 private:
  [[nodiscard]] std::array<std::size_t, kHashes> counters_of(std::uint64_t id) const noexcept {
    const std::uint64_t hash = mix(id ^ seed_);
    std::array<std::size_t, kHashes> counters;
    for (std::size_t i = 0; i < kHashes; ++i) {
      counters[i] = i * kCounters + (hash >> 16U * i) % kCounters;
    }
    return counters;
  }

  std::uint64_t seed_;
  std::vector<std::uint64_t> counters_;
  std::uint64_t total_ = 0;
};

}  // namespace gradwire::table
