// One rank's rows: values, optimizer state and versions. Rows lie in pages; a copy of a shard shares all pages with it,
// and whichever of the two writes to a page copies it first. So a snapshot costs a list of pages, and does not change.
// With a store, rows lie in memory and in a file instead (tiered_rows.hpp), and a copy shares the file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "memory/paged_vector.hpp"
#include "table/flat_index.hpp"
#include "table/row_options.hpp"
#include "table/tiered_rows.hpp"

namespace gradwire::table {

class Shard {
 public:
  /// The shard uses only the width, the optimizer, the initial values of rows, and the store.
  using Settings = RowOptions;
  /// The memory of a row; `accumulators` is empty with SGD.
  struct Row {
    std::uint64_t id = 0;
    std::span<const float> values;
    std::span<const float> accumulators;
  };

  /// Throws what the constructor of TieredRows throws, if the settings name a store. With a store, functions below that
  /// read or change rows may also throw Error(corrupt) or Error(out_of_memory) for the file, and Error(out_of_memory)
  /// for `memory`; the shard can then only be destroyed.
  explicit Shard(Settings settings);
  Shard(Shard&&) noexcept = default;
  Shard& operator=(Shard&&) noexcept = default;

  /// Returns a copy that later changes of either shard do not affect in the other.
  [[nodiscard]] Shard copy();

  /// A number that grows by one with each call of apply() or assign().
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  /// The sequence number at which the row changed last.
  [[nodiscard]] std::uint64_t version(std::uint64_t id) const;
  /// Copies the row; a row that never changed has its initial values.
  void read(std::uint64_t id, float* values) const;
  /// Whether the row ever changed.
  [[nodiscard]] bool contains(std::uint64_t id) const noexcept;
  /// The row's values; empty if it never changed. With a store they are valid until this thread's next call.
  [[nodiscard]] std::span<const float> find(std::uint64_t id) const;

  /// With a store: begins to read the first of these rows (row_batch.hpp). Without one, nothing is read.
  [[nodiscard]] TieredRows::Begun begin(std::span<const std::uint64_t> ids) const {
    return tier_ ? tier_->begin(ids) : TieredRows::Begun{nullptr, ids.size()};
  }
  /// Whether none of these rows lies in a file alone.
  [[nodiscard]] bool in_memory(std::span<const std::uint64_t> ids) const noexcept {
    return !tier_ || std::ranges::all_of(ids, [this](std::uint64_t id) { return tier_->in_memory(id); });
  }
  /// Brings a row to memory, from `fetch` if it is there; passes it to take(values, version). `fetch` may be null.
  template <class Take>
  void use(std::uint64_t id, const RowFetch* fetch, Take take) {
    if (tier_) {
      if (const TieredRows::Row row = tier_->bring(id, fetch); row.head != nullptr) {
        take(row.floats, std::max(row.head->version, unchanged_));
        return;
      }
    } else if (const std::span<const float> row = find(id); !row.empty()) {
      take(row.data(), version(id));
      return;
    }
    scratch_.resize(settings_.width);
    initialize(id, scratch_.data());
    take(scratch_.data(), unchanged_);
  }
  void tend() {
    if (tier_) {
      tier_->tend();
    }
  }
  /// With a store: frees the memory of all rows, which stay in the file.
  void give_back() {
    if (tier_) {
      tier_->give_back();
    }
  }
  /// Adds the handles of the memory of rows and index to `blocks`, for PagePool::compact(). There must be no copy,
  /// since other threads may read what it shares.
  void add_blocks(std::vector<memory::Block*>& blocks);
  /// Null without a store.
  [[nodiscard]] const TieredRows* tier() const noexcept { return tier_.get(); }

  /// Row i of `gradients` is for ids[i]; all ids differ.
  void apply(std::span<const std::uint64_t> ids, const float* gradients);
  void assign(std::span<const std::uint64_t> ids, const float* values);
  /// Assigns a row together with its optimizer state.
  void restore(const Row& row);

  /// The number of rows that ever changed.
  [[nodiscard]] std::uint64_t rows() const noexcept { return tier_ ? tier_->rows() : index_->count(); }
  /// Of these, rows with NaN or Inf in their values or optimizer state.
  [[nodiscard]] std::uint64_t nonfinite_rows() const noexcept { return nonfinite_rows_; }
  /// The ids of all rows, ascending.
  [[nodiscard]] std::vector<std::uint64_t> ids() const;
  /// Passes rows, each of which is here, to take(row) in the order of `ids`. A row is valid during the call.
  void visit(std::span<const std::uint64_t> ids, const std::function<void(const Row&)>& take) const;

  /// Makes this shard the successor of one that has reached `sequence`: every row counts as changed since.
  void continue_after(std::uint64_t sequence) noexcept { sequence_ = unchanged_ = sequence + 1; }
  /// With a store: counts hits and reads on from those of `before`.
  void count_on(const Shard& before) noexcept {
    if (tier_ && before.tier_) {
      tier_->count_on(before.tier_->counts());
    }
  }

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
    Page* page;         // null with a store
    std::uint64_t row;  // in the page
    HotRow* hot;        // null without a store
    float* values;
    float* accumulators;  // null with SGD
  };

  Shard(Shard& from, std::unique_ptr<TieredRows> tier);
  [[nodiscard]] Row row_at(std::uint64_t id, const float* values, const float* accumulators) const noexcept;
  [[nodiscard]] static std::uint64_t new_writer() noexcept;
  void initialize(std::uint64_t id, float* values) const;
  /// Returns the row in memory that only this shard has; makes it if it is not here.
  [[nodiscard]] Slot writable(std::uint64_t id, const RowFetch* fetch = nullptr);
  /// Calls take(first, end, fetch) for the rows `ids` from first to end, which may be read from the file together:
  /// `fetch` has those that lie there alone, and is null if there are none. The next rows are being read meanwhile.
  template <class Take>
  void for_each_batch(std::span<const std::uint64_t> ids, Take take) const;
  /// Calls write(i, slot) for each of `ids`.
  template <class Write>
  void write_each(std::span<const std::uint64_t> ids, Write write);
  [[nodiscard]] Page& own_page(std::uint32_t number);
  std::uint32_t add_row(std::uint64_t id);
  /// To be called after the row was written to.
  void note_change(const Slot& slot) noexcept;

  Settings settings_;
  std::uint64_t writer_ = new_writer();
  std::uint64_t index_writer_ = writer_;
  std::uint64_t sequence_ = 0;
  std::uint64_t nonfinite_rows_ = 0;
  std::uint64_t unchanged_ = 0;       // version of rows that are not here; no row has an earlier one
  std::shared_ptr<FlatIndex> index_;  // to number of page x kPageRows + row; shared like pages
  std::vector<std::shared_ptr<Page>> pages_;
  std::unique_ptr<TieredRows> tier_;  // then there are no pages
  std::vector<float> scratch_;        // a row that never changed
};

}  // namespace gradwire::table
