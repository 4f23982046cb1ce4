// The rows of a shard that does not fit into memory: those in use lie in memory, the others in a file. Everything that
// it keeps, index and buffers included, stays within the memory that its table was given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "table/hot_rows.hpp"
#include "table/record_index.hpp"
#include "table/row_log.hpp"
#include "table/row_options.hpp"

namespace gradwire::table {

struct TierCounts {
  std::uint64_t hits = 0;   // rows that were asked for, or written to, and lay in memory
  std::uint64_t reads = 0;  // the others, which came from the file
};

class TieredRows {
 public:
  /// Opens a file in the folder that `options.store` names. Throws Error(invalid_argument) if `options.memory` is too
  /// little for the buffers, or what the constructor of PageFile throws.
  explicit TieredRows(const RowOptions& options);
  TieredRows(const TieredRows&) = delete;
  TieredRows& operator=(const TieredRows&) = delete;
  ~TieredRows();

  /// Writes all rows that have changed to the file, and returns rows that share it. Later changes of either do not show
  /// in the other.
  [[nodiscard]] std::unique_ptr<TieredRows> copy();

  [[nodiscard]] std::uint64_t rows() const noexcept { return records_.count(); }
  [[nodiscard]] bool contains(std::uint64_t id) const noexcept { return records_.find(id) != RecordIndex::kNone; }
  /// Whether the row does not lie in the file alone.
  [[nodiscard]] bool in_memory(std::uint64_t id) const noexcept {
    return hot_.find(id) != HotRows::kNone || !contains(id);
  }
  /// Returns all ids, ascending.
  [[nodiscard]] std::vector<std::uint64_t> ids() const;

  /// The first `count` of some rows. `fetch` reads those that lie in the file alone, and is null if there are none.
  struct Begun {
    std::unique_ptr<RowFetch> fetch;
    std::size_t count = 0;
  };
  /// Begins to read as many of these rows as may be read together.
  [[nodiscard]] Begun begin(std::span<const std::uint64_t> ids) const;

  struct Row {
    HotRow* head;  // null: there is no such row
    float* floats;
  };
  /// Returns a row in memory, where it is brought from `fetch` or else from the file. It is valid until the next call.
  [[nodiscard]] Row bring(std::uint64_t id, const RowFetch* fetch);
  /// Adds a row, which is not here, and returns its memory.
  [[nodiscard]] Row create(std::uint64_t id);
  /// To be called before a row from bring() is written to.
  void note_change(const Row& row);

  /// Passes a row to take(head, floats) from wherever it lies, without any change; `fetch` may be null. Returns whether
  /// there is one. Threads may call it at the same time.
  template <class Take>
  bool look(std::uint64_t id, const RowFetch* fetch, Take take) const {
    if (const HotRows::Place place = hot_.find(id); place != HotRows::kNone) {
      const HotRow& row = hot_.row(place);
      take(RecordHead{.id = id, .version = row.version, .nonfinite = row.nonfinite}, hot_.floats(place));
      return true;
    }
    const RecordIndex::Number record = records_.find(id);
    if (record == RecordIndex::kNone) {
      return false;
    }
    std::unique_ptr<RowFetch> own;
    const RecordView view = find(id, record, fetch, own);
    take(*view.head, view.floats);
    return true;
  }

  /// Brings memory and file to what they may take. To be called now and then; no row stays valid.
  void tend();
  /// Writes everything to the file and frees the memory of all rows.
  void give_back();
  /// Adds the handles of the memory of rows and index to `blocks`, for PagePool::compact(). There must be no copy, no
  /// row may be in use, and no fetch. The buffers of the file stay where they are, since they may be on their way.
  void add_blocks(std::vector<memory::Block*>& blocks) {
    records_.add_blocks(blocks);
    hot_.add_blocks(blocks);
  }
  [[nodiscard]] const TierCounts& counts() const noexcept { return counts_; }
  /// Counts on from those of rows that these replace.
  void count_on(const TierCounts& before) noexcept {
    counts_.hits += before.hits;
    counts_.reads += before.reads;
  }
  [[nodiscard]] std::uint64_t rows_in_memory() const noexcept { return hot_.count(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return hot_.bytes() + records_.bytes() * log_->users() + log_->buffer_bytes();
  }
  [[nodiscard]] const RowLog& log() const noexcept { return *log_; }

 private:
  // The number of a row whose only valid values lie in memory.
  static constexpr RecordIndex::Number kInMemory = RecordIndex::kNone - 1;

  TieredRows(TieredRows& from, std::size_t most_chunks);
  [[nodiscard]] RecordView find(std::uint64_t id, RowLog::Record record, const RowFetch* fetch,
                                std::unique_ptr<RowFetch>& own) const;
  [[nodiscard]] std::size_t most_chunks() const noexcept;
  void make_room();
  void write_back(HotRows::Place place);
  void leave(HotRows::Place place);
  void give_back_chunk();
  void clean();

  std::size_t floats_;
  std::uint64_t memory_;
  std::size_t fixed_chunks_ = 0;  // of a copy: all that it may have
  std::shared_ptr<RowLog> log_;
  RecordIndex records_;  // of all rows
  HotRows hot_;
  TierCounts counts_;
};

}  // namespace gradwire::table
