// One pull() of rows on one rank: it asks each other rank for the rows that this other rank holds first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/table.hpp"
#include "table/floats.hpp"
#include "table/merge.hpp"
#include "table/row_store.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// The caller sends each other rank what ask() returns, and those ranks what answer() returns to them; then it calls
/// take() for each answer, and give().
class RowPull {
 public:
  RowPull(table::RowStore& store, TableStatistics& counts, std::span<const std::uint64_t> ids, std::size_t world_size);

  [[nodiscard]] wire::Bytes ask(std::size_t rank) const;
  [[nodiscard]] static wire::Bytes answer(table::RowStore& store, const wire::Bytes& asked, std::size_t from);
  [[nodiscard]] std::uint64_t answer_bytes(std::size_t rank) const {
    return asked_[rank].size() * store_.codec().row_bytes();
  }
  void take(std::size_t from, const wire::Bytes& answer);
  void give(std::span<float> rows) const { table::spread_rows(merged_, rows_, store_.options().width, rows); }

 private:
  const table::RowStore& store_;
  TableStatistics& counts_;
  const table::MergedIds merged_;
  table::Floats rows_;                             // values of the rows in `merged_`
  std::vector<std::vector<std::uint32_t>> asked_;  // by rank: indices into `merged_`
};

}  // namespace gradwire::session
