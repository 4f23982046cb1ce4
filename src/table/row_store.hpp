// The rows of a table that one rank holds, and which ranks hold the others. Tables that count by clocks and tables that
// count by steps both use it. It does not communicate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "table/replica_ring.hpp"
#include "table/row_codec.hpp"
#include "table/row_options.hpp"
#include "table/shard.hpp"
#include "wire/bytes.hpp"

namespace gradwire::table {

class RowStore {
 public:
  /// `options` have passed check_rows(). The store belongs to no rank until enter().
  explicit RowStore(RowOptions options);

  [[nodiscard]] const RowOptions& options() const noexcept { return options_; }
  /// `table "NAME": CALL`, for messages.
  [[nodiscard]] std::string said(const char* call) const { return "table \"" + options_.name + "\": " + call; }
  /// The codec of row values on the wire, and that of gradients.
  [[nodiscard]] const RowCodec& codec() const noexcept { return codec_; }
  [[nodiscard]] const RowCodec& gradient_codec() const noexcept { return gradient_codec_; }

  /// From here on this rank is `rank` of `ring`. Its rows do not change.
  void enter(ReplicaRing ring, int rank);
  [[nodiscard]] const ReplicaRing& ring() const noexcept { return ring_; }
  /// The first holder of the row, which other ranks ask for it.
  [[nodiscard]] int owner(std::uint64_t id) const noexcept { return ring_.first_holder(id); }
  [[nodiscard]] bool owns(std::uint64_t id) const noexcept { return owner(id) == rank_; }
  /// Whether this rank has a copy of the row.
  [[nodiscard]] bool holds(std::uint64_t id) const noexcept { return ring_.is_holder(id, rank_); }
  /// The first of these rows of which this rank has no copy.
  [[nodiscard]] std::optional<std::uint64_t> first_not_held(std::span<const std::uint64_t> ids) const noexcept;

  [[nodiscard]] Shard& shard() noexcept { return shard_; }
  [[nodiscard]] const Shard& shard() const noexcept { return shard_; }
  /// Returns a shard without rows, for replace().
  [[nodiscard]] Shard empty_shard() const { return Shard(options_); }
  /// Replaces all rows by those of `shard`; each counts as changed.
  void replace(Shard shard);
  /// Appends rows as codec() encodes them, and brings them to memory.
  void encode(std::vector<std::uint64_t> ids, wire::Bytes& out);
  /// `counts`, completed by the numbers of the rows held here.
  [[nodiscard]] TableStatistics statistics(TableStatistics counts) const noexcept;

 private:
  RowOptions options_;
  RowCodec codec_, gradient_codec_;
  ReplicaRing ring_;
  int rank_ = 0;
  Shard shard_;
};

}  // namespace gradwire::table
