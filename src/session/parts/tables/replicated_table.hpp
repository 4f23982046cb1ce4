// One rank's part of a table that counts with the steps of a session: the rows of which it has a copy, and the pushes
// of the step under way. It does not communicate; its caller exchanges the messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/table.hpp"
#include "memory/block.hpp"
#include "session/parts/tables/step_pushes.hpp"
#include "session/parts/tables/table_world.hpp"
#include "table/row_store.hpp"
#include "table/saved_rows.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

class ReplicatedTable {
 public:
  /// Throws Error(invalid_argument) for options that make no sense. `copies` is above 0.
  explicit ReplicatedTable(SessionTableOptions options);

  /// Returns the options. A small world has fewer copies than they ask for.
  [[nodiscard]] const SessionTableOptions& options() const noexcept { return store_.options(); }
  [[nodiscard]] table::RowStore& store() noexcept { return store_; }
  [[nodiscard]] const table::RowStore& store() const noexcept { return store_; }
  [[nodiscard]] std::string said(const char* call) const { return store_.said(call); }
  [[nodiscard]] TableStatistics statistics() const { return store_.statistics(counts_); }
  [[nodiscard]] TableStatistics& counts() noexcept { return counts_; }

  /// Continues as `rank` of `world`, with the rows that it has. Forgets the pushes of the step under way.
  void enter(const TableWorld& world, int rank);

  /// Throws Error(invalid_argument) for an id outside the table, or a wrong number of elements.
  void check(const char* call, std::span<const std::uint64_t> ids, std::size_t elements) const;

  // The pushes of a step: each of these functions calls its counterpart in StepPushes.
  void push(std::span<const std::uint64_t> ids, std::span<const float> gradients) {
    counts_.rows_pushed += pushes_.push(store_, ids, gradients);
  }
  void send_pushes(std::uint32_t number, std::vector<wire::Bytes>& to) const { pushes_.send(store_, number, to); }
  void take_pushes(wire::ByteReader& in, double weight) { pushes_.take(store_, in, weight); }
  void add_up(bool weighted, std::optional<double> divisor) { pushes_.add_up(store_, weighted, divisor); }
  /// With a store: brings the rows to memory that count() will change, as far as they fit.
  void bring_pushed();
  /// Applies the pushes, because the step counts.
  void count() { pushes_.apply(store_.shard()); }
  void forget_pushes() { pushes_ = {}; }

  /// Saves the rows of which this rank has the first copy, as they are now. Rows that change afterwards take additional
  /// memory, or with a store room in the file, until `to` is gone.
  void save(table::SavedTable& to);
  /// Adds the handles of the rows' memory to `blocks`, for PagePool::compact(). It adds none while rows that were saved
  /// still share that memory, since another thread may read it.
  void add_blocks(std::vector<memory::Block*>& blocks);
  /// Restores a row from a file if this rank has a copy of it. Returns false if the row came before.
  [[nodiscard]] bool restore(const table::Shard::Row& row);
  /// Replaces the rows by those of `other`, a table like this one.
  void take_rows(ReplicatedTable&& other) { store_.replace(std::move(other.store_.shard())); }

 private:
  table::RowStore store_;
  StepPushes pushes_;
  TableStatistics counts_;
  std::shared_ptr<std::atomic<std::uint32_t>> saved_ = std::make_shared<std::atomic<std::uint32_t>>(0);  // still in use
};

}  // namespace gradwire::session
