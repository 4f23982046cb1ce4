// One rank's part of a table that counts with the steps of a session: rows that it holds a copy of, what the step under
// way pushes, and what is on its way from one world to the next. It communicates with nobody: messages go in and out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/processes.hpp"
#include "gradwire/table.hpp"
#include "session/parts/tables/step_pushes.hpp"
#include "table/merge.hpp"
#include "table/row_store.hpp"
#include "table/saved_rows.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// Who holds rows: processes, ascending, and the node of each (Transport::nodes). The place of each is its rank.
struct TableWorld {
  std::vector<Processes::Id> members;
  std::vector<std::uint32_t> nodes;
  friend bool operator==(const TableWorld&, const TableWorld&) = default;
};

class ReplicatedTable {
 public:
  /// Error(invalid_argument) for options that make no sense. `copies` is above 0.
  explicit ReplicatedTable(SessionTableOptions options);

  /// A small world has fewer copies than they say.
  [[nodiscard]] const SessionTableOptions& options() const noexcept { return store_.options(); }
  [[nodiscard]] std::string said(const char* call) const { return store_.said(call); }
  [[nodiscard]] TableStatistics statistics() const { return store_.statistics(counts_); }
  [[nodiscard]] TableStatistics& counts() noexcept { return counts_; }

  /// Goes on as `rank` of that world, whatever rows it holds. What the step under way has pushed is forgotten.
  void enter(const TableWorld& world, int rank);

  // pull(): ask() each other rank, answer() those that ask, take() what they answer, then give().
  struct Pull {
    table::MergedIds merged;
    std::vector<float> rows;                        // of `merged`
    std::vector<std::vector<std::uint32_t>> asked;  // by rank: which of `merged`
  };
  /// Error(invalid_argument) for an id outside the table, or another number of elements.
  void check(const char* call, std::span<const std::uint64_t> ids, std::size_t elements) const;
  [[nodiscard]] Pull begin_pull(std::span<const std::uint64_t> ids);
  [[nodiscard]] wire::Bytes ask(const Pull& pull, std::size_t rank) const;
  [[nodiscard]] wire::Bytes answer(const wire::Bytes& asked, std::size_t from) const;
  [[nodiscard]] std::uint64_t answer_bytes(const Pull& pull, std::size_t rank) const {
    return pull.asked[rank].size() * store_.codec().row_bytes();
  }
  void take(Pull& pull, std::size_t from, const wire::Bytes& answer);
  void give(const Pull& pull, std::span<float> rows) const {
    table::spread_rows(pull.merged, pull.rows, options().width, rows);
  }

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

  // From the world in which rows lie to the one now.
  using RowsByRank = std::vector<std::vector<table::Shard::Row>>;
  /// What this rank is to send to each rank; valid until install(). Error(too_few) where all copies of rows are gone.
  [[nodiscard]] RowsByRank rows_to_move(const TableWorld& from) const;
  /// The first rows of `rows` from `next` on, of about so many bytes; advances `next`.
  void send_rows(std::span<const table::Shard::Row> rows, std::size_t& next, std::uint64_t bytes,
                 wire::Bytes& out) const;
  void stage_rows(wire::ByteReader& in);
  /// What was staged is held from here on, and nothing else than this world gives this rank.
  void install();

  /// Rows of which this rank has the first copy, as they are now. Takes memory for those that change until `to` goes.
  void save(table::SavedTable& to);
  /// A row of a file, where this rank has a copy of it; false: it came before.
  [[nodiscard]] bool restore(const table::Shard::Row& row);
  /// Goes on with the rows of one that is like it.
  void take_rows(ReplicatedTable&& other) { store_.shard() = std::move(other.store_.shard()); }

 private:
  struct StagedRows {
    std::vector<std::uint64_t> ids;
    std::vector<float> floats;  // values and optimizer state
  };

  table::RowStore store_;
  table::RowCodec state_codec_;  // of rows with their optimizer state: as they are
  TableWorld world_;
  int rank_ = 0;
  StepPushes pushes_;
  StagedRows staged_;
  TableStatistics counts_;
};

}  // namespace gradwire::session
