// One rank's rows: values, optimizer state and versions. Rows lie in pages; a copy of a shard shares all pages with it,
// and whichever of the two writes to one copies it first. So a snapshot costs a list of pages, and stays as it is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "table/flat_index.hpp"
#include "table/row_options.hpp"

namespace gradwire::table {

class Shard {
 public:
  /// Of these it looks at width, optimizer and what rows begin as.
  using Settings = RowOptions;
  /// A row's memory; `accumulators` is empty with SGD.
  struct Row {
    std::uint64_t id = 0;
    std::span<const float> values;
    std::span<const float> accumulators;
  };

  explicit Shard(const Settings& settings);
  Shard(Shard&&) noexcept = default;
  Shard& operator=(Shard&&) noexcept = default;

  /// What is here now, apart from what either of both does later.
  [[nodiscard]] Shard copy();

  /// One more with each call of apply() or assign().
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  /// The sequence number at which the row changed last.
  [[nodiscard]] std::uint64_t version(std::uint64_t id) const noexcept;
  /// Copies the row; one that never changed is what it begins as.
  void read(std::uint64_t id, float* values) const;
  /// The row's memory; empty where it never changed.
  [[nodiscard]] std::span<const float> find(std::uint64_t id) const noexcept;

  /// Row i of `gradients` is for ids[i]; ids differ.
  void apply(std::span<const std::uint64_t> ids, const float* gradients);
  void assign(std::span<const std::uint64_t> ids, const float* values);
  /// assign() of a row with its optimizer state.
  void restore(const Row& row);

  /// Rows that ever changed.
  [[nodiscard]] std::uint64_t rows() const noexcept { return index_->count(); }
  /// Of these, rows with NaN or Inf in their values or optimizer state.
  [[nodiscard]] std::uint64_t nonfinite_rows() const noexcept { return nonfinite_rows_; }
  /// All rows, by ascending id. Valid until this shard changes.
  [[nodiscard]] std::vector<Row> sorted() const;

  /// This empty shard takes the place of one that has come to `sequence`: every row counts as changed since.
  void continue_after(std::uint64_t sequence) noexcept { sequence_ = unchanged_ = sequence + 1; }

 private:
  static constexpr std::uint32_t kPageRows = 64;
  struct Page {
    std::uint64_t writer = 0;     // the shard that may write here
    std::uint64_t nonfinite = 0;  // a bit for each row
    std::vector<std::uint64_t> ids, versions;
    std::vector<float> values, accumulators;
  };
  static_assert(kPageRows == 64, "a page has a bit for each row");
  struct Slot {
    Page& page;
    std::uint64_t row;  // in it
    float* values;
    float* accumulators;  // null with SGD
  };

  Shard(const Shard&) = default;
  [[nodiscard]] static std::uint64_t new_writer() noexcept;
  void initialize(std::uint64_t id, float* values) const;
  /// The row, made if it is not here, in memory that only this shard has.
  [[nodiscard]] Slot writable(std::uint64_t id);
  [[nodiscard]] Page& own_page(std::uint32_t number);
  std::uint32_t add_row(std::uint64_t id);
  /// After the row was written to.
  void note_change(const Slot& slot) noexcept;

  Settings settings_;
  std::uint64_t writer_ = new_writer();
  std::uint64_t index_writer_ = writer_;
  std::uint64_t sequence_ = 0;
  std::uint64_t nonfinite_rows_ = 0;
  std::uint64_t unchanged_ = 0;       // version of rows that are not here
  std::shared_ptr<FlatIndex> index_;  // to number of page x kPageRows + row; shared like pages
  std::vector<std::shared_ptr<Page>> pages_;
};

}  // namespace gradwire::table
