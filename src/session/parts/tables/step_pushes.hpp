// The pushes of one step to a table: this rank's gradients are kept until the step ends, and then go to all ranks that
// hold the rows. Each of these ranks adds up the gradients of all ranks, in the order of ranks, so that the copies of a
// row change alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "table/flat_index.hpp"
#include "table/floats.hpp"
#include "table/row_store.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

class StepPushes {
 public:
  /// Adds this rank's gradients of rows to those that it pushed before, and returns how many rows are new to the step.
  /// Throws Error(invalid_argument) where ReplicatedTable::check() does, and for NaN or Inf, before or after encoding;
  /// nothing of the call is kept then.
  std::uint64_t push(const table::RowStore& store, std::span<const std::uint64_t> ids,
                     std::span<const float> gradients);
  /// Appends the part for rank r to to[r]; a part begins with the table's number.
  void send(const table::RowStore& store, std::uint32_t number, std::vector<wire::Bytes>& to) const;
  /// Takes the part of one rank, whose gradients count `weight` times. The caller takes ranks in order. `in` is behind
  /// the table's number, and its bytes must stay in place until add_up().
  void take(const table::RowStore& store, wire::ByteReader& in, double weight);
  /// Adds up the gradients of all parts, times their weights if `weighted`. For a mean, it divides the sums by
  /// `divisor`.
  void add_up(const table::RowStore& store, bool weighted, std::optional<double> divisor);
  /// The ids of the rows that apply() changes.
  [[nodiscard]] const std::vector<std::uint64_t>& ids() const noexcept { return sums_.ids; }
  /// Applies the sums to `rows`, and forgets all pushes.
  void apply(table::Shard& rows);

 private:
  struct Sums {
    std::vector<std::uint64_t> ids;
    table::Floats values;
  };
  struct Sent {
    std::size_t first;  // index into ids_sent_
    std::size_t count;
    const std::byte* rows;
    double weight;
  };

  Sums own_;                       // pushed by this rank, each id once, in any order
  table::FlatIndex place_in_own_;  // index into own_.ids, by id
  std::vector<std::uint64_t> ids_sent_;
  std::vector<Sent> sent_;  // by all ranks, for rows that this rank holds
  Sums sums_;
};

}  // namespace gradwire::session
