// One rank's part of a table that counts with the steps of a session: rows that it holds a copy of, and what the step
// under way pushes. It communicates with nobody: messages go in and out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/table.hpp"
#include "session/parts/tables/step_pushes.hpp"
#include "session/parts/tables/table_world.hpp"
#include "table/row_store.hpp"
#include "table/saved_rows.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

class ReplicatedTable {
 public:
  /// Error(invalid_argument) for options that make no sense. `copies` is above 0.
  explicit ReplicatedTable(SessionTableOptions options);

  /// A small world has fewer copies than they say.
  [[nodiscard]] const SessionTableOptions& options() const noexcept { return store_.options(); }
  [[nodiscard]] table::RowStore& store() noexcept { return store_; }
  [[nodiscard]] const table::RowStore& store() const noexcept { return store_; }
  [[nodiscard]] std::string said(const char* call) const { return store_.said(call); }
  [[nodiscard]] TableStatistics statistics() const { return store_.statistics(counts_); }
  [[nodiscard]] TableStatistics& counts() noexcept { return counts_; }

  /// Goes on as `rank` of that world, whatever rows it holds. What the step under way has pushed is forgotten.
  void enter(const TableWorld& world, int rank);

  /// Error(invalid_argument) for an id outside the table, or another number of elements.
  void check(const char* call, std::span<const std::uint64_t> ids, std::size_t elements) const;

  // Pushes of a step, by StepPushes: each function is the one of that name there.
  void push(std::span<const std::uint64_t> ids, std::span<const float> gradients) {
    counts_.rows_pushed += pushes_.push(store_, ids, gradients);
  }
  void send_pushes(std::uint32_t number, std::vector<wire::Bytes>& to) const { pushes_.send(store_, number, to); }
  void take_pushes(wire::ByteReader& in, double weight) { pushes_.take(store_, in, weight); }
  void add_up(bool weighted, std::optional<double> divisor) { pushes_.add_up(store_, weighted, divisor); }
  /// The step counts.
  void count() { pushes_.apply(store_.shard()); }
  void forget_pushes() { pushes_ = {}; }

  /// Rows of which this rank has the first copy, as they are now. Takes memory for those that change until `to` goes.
  void save(table::SavedTable& to);
  /// A row of a file, where this rank has a copy of it; false: it came before.
  [[nodiscard]] bool restore(const table::Shard::Row& row);
  /// Goes on with the rows of one that is like it.
  void take_rows(ReplicatedTable&& other) { store_.shard() = std::move(other.store_.shard()); }

 private:
  table::RowStore store_;
  StepPushes pushes_;
  TableStatistics counts_;
};

}  // namespace gradwire::session
