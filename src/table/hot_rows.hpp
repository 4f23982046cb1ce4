// The rows of a table that lie in memory, in chunks of 64. CLOCK with small counters chooses which of them leaves: a
// hand goes around, takes the first row whose counter is 0, and counts the others down; each use counts up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/block.hpp"
#include "table/record_index.hpp"

namespace gradwire::table {

struct HotRow {
  std::uint64_t id;
  std::uint64_t version;
  bool taken;
  bool changed;  // since it was read from the file, or it was never there
  bool nonfinite;
  std::uint8_t uses;
};

class HotRows {
 public:
  using Place = std::uint32_t;
  static constexpr Place kNone = RecordIndex::kNone;
  static constexpr std::uint32_t kChunkRows = 64;

  /// Each row has `floats` floats, and all ids are below `rows`.
  HotRows(std::size_t floats, std::uint64_t rows) : floats_(floats), index_(rows) {}

  [[nodiscard]] std::uint64_t count() const noexcept { return index_.count(); }
  [[nodiscard]] bool full() const noexcept { return free_.empty(); }
  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_.size(); }
  [[nodiscard]] std::uint64_t index_bytes() const noexcept { return index_.bytes(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return chunks_.size() * chunk_bytes() + index_bytes(); }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return kChunkRows * (sizeof(HotRow) + floats_ * sizeof(float));
  }

  [[nodiscard]] Place find(std::uint64_t id) const noexcept { return index_.find(id); }
  [[nodiscard]] HotRow& row(Place place) const noexcept {
    return reinterpret_cast<HotRow*>(chunks_[place / kChunkRows].data())[place % kChunkRows];
  }
  [[nodiscard]] float* floats(Place place) const noexcept {
    return reinterpret_cast<float*>(chunks_[place / kChunkRows].data() + kChunkRows * sizeof(HotRow)) +
           place % kChunkRows * floats_;
  }

  void use(Place place) noexcept {
    std::uint8_t& uses = row(place).uses;
    uses = static_cast<std::uint8_t>(uses < kMostUses ? uses + 1 : kMostUses);
  }
  /// Adds a row that is not here, while it is not full(). Its floats are left as they are.
  Place add(std::uint64_t id, std::uint64_t version);
  void remove(Place place);
  /// Returns the row that should leave; there is one.
  [[nodiscard]] Place coldest() noexcept;
  /// Makes room for 64 rows. May throw Error(out_of_memory).
  void add_chunk();
  /// Frees the memory of the last chunk, which has no rows any more.
  void remove_chunk() noexcept;
  /// Adds the handles of all memory to `blocks`, for PagePool::compact().
  void add_blocks(std::vector<memory::Block*>& blocks);

 private:
  static constexpr std::uint8_t kMostUses = 3;

  std::size_t floats_;
  RecordIndex index_;  // to places
  std::vector<memory::Block> chunks_;
  std::vector<Place> free_;
  Place hand_ = 0;
};

}  // namespace gradwire::table
