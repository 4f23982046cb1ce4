// One rank's rows: values, optimizer state and versions. Rows lie in pages; a copy of a shard shares all pages with it,
// and whichever of the two writes to a page copies it first. So a snapshot costs a list of pages, and does not change.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/paged_vector.hpp"
#include "table/flat_index.hpp"
#include "table/row_options.hpp"

namespace gradwire::table {

class Shard {
 public:
  /// The shard uses only the width, the optimizer and the initial values of rows.
  using Settings = RowOptions;
  /// The memory of a row; `accumulators` is empty with SGD.
  struct Row {
    std::uint64_t id = 0;
    std::span<const float> values;
    std::span<const float> accumulators;
  };

  explicit Shard(Settings settings);
  Shard(Shard&&) noexcept = default;
  Shard& operator=(Shard&&) noexcept = default;

  /// Returns a copy that later changes of either shard do not affect in the other.
  [[nodiscard]] Shard copy();

  /// A number that grows by one with each call of apply() or assign().
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  /// The sequence number at which the row changed last.
  [[nodiscard]] std::uint64_t version(std::uint64_t id) const noexcept;
  /// Copies the row; a row that never changed has its initial values.
  void read(std::uint64_t id, float* values) const;
  /// The row's memory; empty if it never changed.
  [[nodiscard]] std::span<const float> find(std::uint64_t id) const noexcept;

  /// Row i of `gradients` is for ids[i]; all ids differ.
  void apply(std::span<const std::uint64_t> ids, const float* gradients);
  void assign(std::span<const std::uint64_t> ids, const float* values);
  /// Assigns a row together with its optimizer state.
  void restore(const Row& row);

  /// The number of rows that ever changed.
  [[nodiscard]] std::uint64_t rows() const noexcept { return index_->count(); }
  /// Of these, rows with NaN or Inf in their values or optimizer state.
  [[nodiscard]] std::uint64_t nonfinite_rows() const noexcept { return nonfinite_rows_; }
  /// All rows, by ascending id. Valid until this shard changes.
  [[nodiscard]] std::vector<Row> sorted() const;

  /// Makes this empty shard the successor of one that has reached `sequence`: every row counts as changed since.
  void continue_after(std::uint64_t sequence) noexcept { sequence_ = unchanged_ = sequence + 1; }

 private:
  static constexpr std::uint32_t kPageRows = 64;
  struct Page {
    std::uint64_t writer = 0;     // the shard that may write here
    std::uint64_t nonfinite = 0;  // a bit for each row
    std::vector<std::uint64_t> ids, versions;
    memory::PagedVector<float, memory::MemoryUse::tables> values, accumulators;
  };
  static_assert(kPageRows == 64, "a page has a bit for each row");
  struct Slot {
    Page& page;
    std::uint64_t row;  // in the page
    float* values;
    float* accumulators;  // null with SGD
  };

  Shard(const Shard&) = default;
  [[nodiscard]] static std::uint64_t new_writer() noexcept;
  void initialize(std::uint64_t id, float* values) const;
  /// Returns the row in memory that only this shard has; makes it if it is not here.
  [[nodiscard]] Slot writable(std::uint64_t id);
  [[nodiscard]] Page& own_page(std::uint32_t number);
  std::uint32_t add_row(std::uint64_t id);
  /// To be called after the row was written to.
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
