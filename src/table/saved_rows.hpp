// Rows of a table on their way to a file that a session writes, and from one: what the file's format asks for.
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
  std::uint64_t layout = 0;  // of who holds rows: alike in files that belong together
  /// To be written: rows that were ever written to, of which this rank has the first copy, by ascending id; their
  /// memory is `shard`, which training does not change. What is read goes to a RowSink.
  std::shared_ptr<const Shard> shard = {};
  std::vector<Shard::Row> own = {};
  [[nodiscard]] std::string said() const { return "table \"" + name + "\""; }
  [[nodiscard]] std::size_t row_floats() const { return table::row_floats(optimizer, width); }
};

/// Where rows of tables go while a file is read.
class RowSink {
 public:
  RowSink() = default;
  RowSink(const RowSink&) = default;
  RowSink(RowSink&&) = default;
  RowSink& operator=(const RowSink&) = default;
  RowSink& operator=(RowSink&&) = default;
  virtual ~RowSink() = default;
  /// Whether rows of this table, the `number`th of the file, are to come.
  [[nodiscard]] virtual bool wants(std::size_t number, const SavedTable& table) = 0;
  /// `row` is valid during the call. False: it came before.
  [[nodiscard]] virtual bool take(std::size_t number, const Shard::Row& row) = 0;
};

}  // namespace gradwire::table
