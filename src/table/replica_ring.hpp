// Assigns rows to ranks if each row has several copies: to the first few different ranks along the ring. So when a rank
// ends, its part goes to the next ones, and no row moves between ranks that stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "table/hash_ring.hpp"

namespace gradwire::table {

class ReplicaRing {
 public:
  /// A ring without ranks, on which no other function may be called.
  ReplicaRing() : ReplicaRing({}, {}, 0) {}
  /// A ring with one copy of each row, by the ranks' numbers.
  explicit ReplicaRing(int ranks);
  /// `keys` are those of the ranks, ascending, see HashRing. `nodes` has the node of each rank, or is empty if all
  /// share one. Copies go to different nodes if possible, unless one node has more than two thirds of the ranks. Each
  /// row has `copies`, or as many as there are ranks.
  ReplicaRing(std::span<const std::uint32_t> keys, std::span<const std::uint32_t> nodes, std::uint32_t copies);

  [[nodiscard]] std::size_t copies() const noexcept { return copies_; }
  /// The ranks that hold the row, all different, with the first holder at the front.
  [[nodiscard]] std::span<const int> holders(std::uint64_t id) const noexcept { return at(ring_.place_of(id)); }
  /// The first holder of the row.
  [[nodiscard]] int first_holder(std::uint64_t id) const noexcept { return ring_.owner(id); }
  [[nodiscard]] bool is_holder(std::uint64_t id, int rank) const noexcept;
  /// The part of the ring, 0 to 1, without a remaining holder.
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
