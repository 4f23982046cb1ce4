// Rows of one table on their way from the world in which they lie to the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "session/parts/tables/table_world.hpp"
#include "table/row_store.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// Nothing changes in `store` before install().
class RowMove {
 public:
  explicit RowMove(table::RowStore& store);

  using RowsByRank = std::vector<std::vector<table::Shard::Row>>;
  /// What this rank, `self` of world `to`, is to send to each rank; valid until install(). Error(too_few) where all
  /// copies of rows are gone.
  [[nodiscard]] RowsByRank rows_for(const TableWorld& from, const TableWorld& to, int self) const;
  /// The first rows of `rows` from `next` on, of about so many bytes; advances `next`.
  void send(std::span<const table::Shard::Row> rows, std::size_t& next, std::uint64_t bytes, wire::Bytes& out) const;
  void stage(wire::ByteReader& in);
  /// What was staged is held from here on, and nothing else than the new world gives this rank.
  void install();

 private:
  table::RowStore& store_;
  table::RowCodec codec_;  // of rows with their optimizer state: as they are
  std::vector<std::uint64_t> ids_;
  std::vector<float> floats_;  // values and optimizer state of `ids_`
};

}  // namespace gradwire::session
