// The tables of a session on one rank: what all ranks do with them together in steps, and when the world changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/statistics.hpp"
#include "session/parts/tables/replicated_table.hpp"
#include "session/parts/tables/row_move.hpp"
#include "table/saved_rows.hpp"

namespace gradwire::session {

/// All ranks make the calls that take `peers`, in the same order. These calls block, and throw the errors that end the
/// world or the session. Their changes count only after count() or install().
class SessionTables {
 public:
  [[nodiscard]] bool empty() const noexcept { return tables_.empty(); }
  /// Adds a table and returns its number, by which all calls below refer to it; they throw Error(invalid_argument) for
  /// a number without a table. Throws Error(invalid_argument) for a name that another table has, and as the constructor
  /// of ReplicatedTable does.
  std::uint32_t add(const SessionTableOptions& options);
  /// Returns the lines of plan::Plan::tables.
  [[nodiscard]] std::vector<std::string> describe() const;
  /// Returns what the tables cost, as text for people.
  [[nodiscard]] std::string explain() const;

  /// Continues as `rank` of `world`. Forgets the step and the move under way.
  void enter(const TableWorld& world, int rank);

  /// Throws Error(invalid_argument) for arguments that pull() must not be given.
  void check_pull(std::uint32_t number, std::span<const std::uint64_t> ids, std::size_t elements) const;
  void pull(exchange::Peers& peers, std::uint32_t number, std::span<const std::uint64_t> ids, std::span<float> rows);
  void push(std::uint32_t number, std::span<const std::uint64_t> ids, std::span<const float> gradients);
  /// Whether the step under way has pulled or pushed. If the world changes, the caller must then begin this step anew.
  [[nodiscard]] bool in_use() const noexcept { return in_use_; }

  /// Sends the gradients of this step to all ranks that hold the rows, which add them up: to sums, or to means by the
  /// world size, or by weights if there are any.
  void exchange_pushes(exchange::Peers& peers, Reduction reduction, std::optional<double> weight);
  /// Applies the sums of exchange_pushes(), because the step counts.
  void count();
  void forget_pushes();

  /// Whether rows lie as in another world. The answer is the same on all ranks that were in that world.
  [[nodiscard]] bool to_move() const { return lies_ && *lies_ != world_; }
  /// Sends rows to the ranks that hold them from here on. `holds`: this rank knows what the ranks of the world before
  /// know. Throws Error(too_few) on all ranks if no copy of some rows is left.
  void move(exchange::Peers& peers, bool holds);
  /// Puts the moved rows in place, after all ranks have moved theirs.
  void install();

  [[nodiscard]] TableStatistics statistics(std::uint32_t number) const;
  /// Returns where the rows of each table lie.
  [[nodiscard]] std::vector<RowTable> row_tables() const;

  /// Adds the handles of the memory of rows that may move between two steps to `blocks`.
  void add_blocks(std::vector<memory::Block*>& blocks) {
    for (ReplicatedTable& table : tables_) {
      table.add_blocks(blocks);
    }
  }

  /// What files hold. heads() describes each table; save() also has the rows of which this rank has the first copy.
  [[nodiscard]] std::vector<table::SavedTable> heads() const;
  [[nodiscard]] std::vector<table::SavedTable> save();
  /// Collects from the files of all ranks the rows of which this rank has a copy. The tables keep their present rows
  /// meanwhile.
  class Loading final : public table::RowSink {
   public:
    Loading() = default;
    explicit Loading(SessionTables& to);
    [[nodiscard]] bool wants(std::size_t number, const table::SavedTable& table) override;
    [[nodiscard]] bool take(std::size_t number, const table::Shard::Row& row) override;

   private:
    friend class SessionTables;
    std::vector<ReplicatedTable> tables_;
    std::optional<std::uint64_t> layout_;  // the layout of the files
  };
  /// Replaces the rows by those of `loading`. All ranks call this between the same two calls that communicate.
  void load(Loading&& loading);

 private:
  /// Returns `number`, or throws Error(invalid_argument) if there is no such table.
  [[nodiscard]] std::uint32_t known(std::uint32_t number, const char* call) const;
  // Ranks agree on the descriptions of tables, and on nothing else: ranks that begin a step anew may have been at
  // different places in it.
  void agree(exchange::Peers& peers);
  [[nodiscard]] std::optional<TableWorld> agree_on_place(exchange::Peers& peers, bool holds) const;

  std::vector<ReplicatedTable> tables_;
  TableWorld world_;
  int rank_ = 0;
  bool agreed_ = false;  // in this world
  bool in_use_ = false;
  std::optional<TableWorld> lies_;       // where rows lie; none: nothing was ever written
  std::optional<TableWorld> to_lie_in_;  // set by move(), until install()
  std::vector<RowMove> moves_;           // likewise, one for each table
};

}  // namespace gradwire::session
