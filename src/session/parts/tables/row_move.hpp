// Moves the rows of one table from the world in which they lie to the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "session/parts/tables/table_world.hpp"
#include "table/row_store.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// `store` does not change before install().
class RowMove {
 public:
  explicit RowMove(table::RowStore& store);

  using IdsByRank = std::vector<std::vector<std::uint64_t>>;
  /// Returns the ids of the rows that this rank, `self` of world `to`, must send to each rank, ascending.
  /// Throws Error(too_few) if all copies of some rows are gone.
  [[nodiscard]] IdsByRank rows_for(const TableWorld& from, const TableWorld& to, int self) const;
  /// Appends to `out` about `bytes` bytes of the rows `ids` from `next` on, and advances `next`.
  void send(std::span<const std::uint64_t> ids, std::size_t& next, std::uint64_t bytes, wire::Bytes& out) const;
  void stage(wire::ByteReader& in);
  /// Adds the staged rows to the store, and removes the rows that the new world does not give to this rank.
  void install();

 private:
  table::RowStore& store_;
  table::RowCodec codec_;               // exact, for rows with their optimizer state
  std::optional<table::Shard> staged_;  // rows that have come
};

}  // namespace gradwire::session
