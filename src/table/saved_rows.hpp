// Rows of a table that a session writes to a file or reads from one, with the data that the file's format needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "table/row_options.hpp"
#include "table/shard.hpp"

namespace gradwire::table {

struct SavedTable {
  std::string name;
  std::uint64_t rows = 0;  // of the table
  std::uint32_t width = 0;
  RowOptimizer optimizer = RowOptimizer::sgd;
  std::uint64_t layout = 0;  // identifies which ranks hold rows; equal in files that belong together
  /// The ids of the rows to be written: those that were ever changed and of which this rank has the first copy,
  /// ascending; they are rows of `shard`, which training does not change. Rows that are read go to a RowSink.
  std::shared_ptr<const Shard> shard = {};
  std::vector<std::uint64_t> own = {};
  [[nodiscard]] std::string said() const { return "table \"" + name + "\""; }
  [[nodiscard]] std::size_t row_floats() const { return table::row_floats(optimizer, width); }
};

/// Takes the rows of tables while a file is read.
class RowSink {
 public:
  RowSink() = default;
  RowSink(const RowSink&) = default;
  RowSink(RowSink&&) = default;
  RowSink& operator=(const RowSink&) = default;
  RowSink& operator=(RowSink&&) = default;
  virtual ~RowSink() = default;
  /// Whether to pass the rows of this table, the `number`th of the file, to take().
  [[nodiscard]] virtual bool wants(std::size_t number, const SavedTable& table) = 0;
  /// `row` is valid during the call. Returns false if the row came before.
  [[nodiscard]] virtual bool take(std::size_t number, const Shard::Row& row) = 0;
};

}  // namespace gradwire::table
