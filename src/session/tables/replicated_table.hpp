// One rank's part of a table that counts with the steps of a session: rows that it holds a copy of, what the step under
// way pushes, and what is on its way from one world to the next. It communicates with nobody: messages go in and out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/processes.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/table.hpp"
#include "session/checkpoint/state_file.hpp"
#include "table/flat_index.hpp"
#include "table/merge.hpp"
#include "table/replica_ring.hpp"
#include "table/row_codec.hpp"
#include "table/shard.hpp"
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
  /// Error(invalid_argument) for options that make no sense, or that are for a Table alone. `copies` is above 0.
  explicit ReplicatedTable(TableOptions options);

  [[nodiscard]] const TableOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::string said(const char* call) const { return "table \"" + options_.name + "\": " + call; }
  [[nodiscard]] const table::ReplicaRing& ring() const noexcept { return ring_; }
  [[nodiscard]] TableStatistics statistics() const;
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
    return pull.asked[rank].size() * codec_.row_bytes();
  }
  void take(Pull& pull, std::size_t from, const wire::Bytes& answer);
  void give(const Pull& pull, std::size_t ids, std::span<float> rows) const;

  // push(): kept until the step ends, sent to all that hold the rows, added up by these, applied once the step counts.
  /// Error(invalid_argument) for what check() finds, and NaN or Inf, also once encoded: nothing is kept of it then.
  void push(std::span<const std::uint64_t> ids, std::span<const float> gradients);
  /// Appends what is for rank r to to[r].
  void send_pushes(std::uint32_t number, std::vector<wire::Bytes>& to) const;
  /// Of one rank, whose gradients count `weight` times. In the order of ranks; `in` stands behind the table's number
  /// and stays in place until add_up().
  void take_pushes(wire::ByteReader& in, double weight);
  /// `divisor`: of a mean.
  void add_up(bool weighted, std::optional<double> divisor);
  /// Applies what was added up.
  void count();
  void forget_pushes();

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
  void save(SavedState::Table& to);
  /// A row of a file, where this rank has a copy of it; false: it came before.
  [[nodiscard]] bool restore(const table::Shard::Row& row);
  /// Goes on with the rows of one that is like it.
  void take_rows(ReplicatedTable&& other) { shard_ = std::move(other.shard_); }

 private:
  struct Rows {
    std::vector<std::uint64_t> ids;
    std::vector<float> values;
  };
  struct Part {
    std::size_t first;  // of the ids
    std::size_t count;
    const std::byte* rows;
    double weight;
  };

  [[nodiscard]] bool holds(std::uint64_t id) const;
  void check_encodes(std::span<const std::uint64_t> ids, const std::vector<float>& sums) const;
  [[nodiscard]] std::size_t moved_floats() const {
    return std::size_t{options_.optimizer == RowOptimizer::adagrad ? 2U : 1U} * options_.width;
  }

  TableOptions options_;
  table::RowCodec codec_;
  table::RowCodec gradient_codec_;
  TableWorld world_;
  int rank_ = 0;
  table::ReplicaRing ring_;
  table::Shard shard_;
  Rows pending_;                       // pushed by this rank in the step under way, each id once, in any order
  table::FlatIndex place_in_pending_;  // by id
  // Of all ranks, in this step, of rows that this rank holds.
  std::vector<std::uint64_t> pushed_ids_;
  std::vector<Part> parts_;
  Rows sums_;
  Rows staged_;  // values with optimizer state
  TableStatistics counts_;
};

}  // namespace gradwire::session
