// The tables of a session on one rank: what all ranks do together with them in steps, and when the world changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "gradwire/reduction.hpp"
#include "session/parts/tables/replicated_table.hpp"
#include "session/parts/tables/row_move.hpp"
#include "table/saved_rows.hpp"

namespace gradwire::session {

/// Calls that take `peers` are made by all ranks in the same order; they block, and throw what ends the world or the
/// session. What they change counts only once count() or install() says so.
class Tables {
 public:
  [[nodiscard]] bool empty() const noexcept { return tables_.empty(); }
  /// Its number, by which all calls below know it; they are Error(invalid_argument) for one that is none. See
  /// ReplicatedTable. Error(invalid_argument) for a name that another one has.
  std::uint32_t add(const SessionTableOptions& options);
  /// Lines of plan::Plan::tables.
  [[nodiscard]] std::vector<std::string> describe() const;
  /// What they cost, for people.
  [[nodiscard]] std::string explain() const;

  /// Goes on as `rank` of that world. What is under way is forgotten.
  void enter(const TableWorld& world, int rank);

  /// Error(invalid_argument) for arguments that pull() must not be given.
  void check_pull(std::uint32_t number, std::span<const std::uint64_t> ids, std::size_t elements) const;
  void pull(exchange::Peers& peers, std::uint32_t number, std::span<const std::uint64_t> ids, std::span<float> rows);
  void push(std::uint32_t number, std::span<const std::uint64_t> ids, std::span<const float> gradients);
  /// Whether the step under way has pulled or pushed: a change of world is to begin it anew, by the caller.
  [[nodiscard]] bool in_use() const noexcept { return in_use_; }

  /// Rows' gradients of this step go to all that hold the rows, and are added up there: sums, or means by world size or
  /// by weights where there are any.
  void exchange_pushes(exchange::Peers& peers, Reduction reduction, std::optional<double> weight);
  /// The step counts: what was added up is applied.
  void count();
  void forget_pushes();

  /// Whether rows lie as in another world. The same on all ranks that were there.
  [[nodiscard]] bool to_move() const { return lies_ && *lies_ != world_; }
  /// Rows go to ranks that hold them from here on. `holds`: what the others know is known here. Error(too_few) on all
  /// ranks where no copy of some rows is left.
  void move(exchange::Peers& peers, bool holds);
  /// All ranks have moved them.
  void install();

  [[nodiscard]] TableStatistics statistics(std::uint32_t number) const;

  /// What files hold: of each table what it is, or also the rows of which this rank has the first copy.
  [[nodiscard]] std::vector<table::SavedTable> heads() const;
  [[nodiscard]] std::vector<table::SavedTable> save();
  /// Rows of which this rank has a copy, from the files of all ranks, beside those that it has now.
  class Loading final : public table::RowSink {
   public:
    Loading() = default;
    explicit Loading(const Tables& to);
    [[nodiscard]] bool wants(std::size_t number, const table::SavedTable& table) override;
    [[nodiscard]] bool take(std::size_t number, const table::Shard::Row& row) override;

   private:
    friend class Tables;
    std::vector<ReplicatedTable> tables_;
    TableWorld world_;
    std::optional<std::uint64_t> layout_;  // of the files
  };
  /// Whether who holds which rows is still as it was when `loading` was made; the same on all ranks.
  [[nodiscard]] bool still_for(const Loading& loading) const { return loading.world_ == world_; }
  /// Rows are those of `loading` from here on; on all ranks, between the same calls that communicate.
  void load(Loading&& loading);

 private:
  /// The number itself.
  [[nodiscard]] std::uint32_t known(std::uint32_t number, const char* call) const;
  // On what they are; on nothing else, since ranks that begin a step anew may have come to different places of it.
  void agree(exchange::Peers& peers);
  [[nodiscard]] std::optional<TableWorld> agree_on_place(exchange::Peers& peers, bool holds) const;

  std::vector<ReplicatedTable> tables_;
  TableWorld world_;
  int rank_ = 0;
  bool agreed_ = false;  // in this world
  bool in_use_ = false;
  std::optional<TableWorld> lies_;       // where rows lie; none: nothing was ever written
  std::optional<TableWorld> to_lie_in_;  // of move(), until install()
  std::vector<RowMove> moves_;           // likewise, one a table
};

}  // namespace gradwire::session
