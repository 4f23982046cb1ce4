// Which ranks hold a row where each row has several copies: the first few different ranks along the ring, so that a
// rank that ends gives its part to those that come next, and no row moves between ranks that stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "table/hash_ring.hpp"

namespace gradwire::table {

class ReplicaRing {
 public:
  /// Of no rank; nothing may be asked of it.
  ReplicaRing() : ReplicaRing({}, {}, 0) {}
  /// One copy of each row, by the ranks' numbers.
  explicit ReplicaRing(int ranks);
  /// `keys`: of the ranks, ascending, see HashRing. `nodes`: of each rank, or empty where all share one; copies go to
  /// different nodes as far as there are any, but where one node has more than two thirds of the ranks. Of each row
  /// there are `copies`, or as many as there are ranks.
  ReplicaRing(std::span<const std::uint32_t> keys, std::span<const std::uint32_t> nodes, std::uint32_t copies);

  [[nodiscard]] std::size_t copies() const noexcept { return copies_; }
  /// Different ranks; the first one first.
  [[nodiscard]] std::span<const int> holders(std::uint64_t id) const noexcept { return at(ring_.place_of(id)); }
  /// The first of them.
  [[nodiscard]] int first_holder(std::uint64_t id) const noexcept { return ring_.owner(id); }
  [[nodiscard]] bool is_holder(std::uint64_t id, int rank) const noexcept;
  /// The part of the ring, 0 to 1, of which no holder is left.
  [[nodiscard]] double lost(const std::vector<bool>& left) const;

 private:
  [[nodiscard]] std::span<const int> at(std::size_t place) const noexcept {
    return std::span(holders_).subspan(place * copies_, copies_);
  }

  HashRing ring_;
  std::size_t copies_ = 0;
  std::vector<int> holders_;  // by place, `copies_` each
};

}  // namespace gradwire::table
