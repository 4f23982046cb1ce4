// Maps row ids to places in an array. It is a hash table of one array with linear probing, which one memcpy copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "memory/paged_vector.hpp"
#include "table/hash_ring.hpp"

namespace gradwire::table {

class FlatIndex {
 public:
  static constexpr std::uint32_t kNone = ~0U;

  FlatIndex() : cells_(empty_cells(16)) {}

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// The id's place, or kNone.
  [[nodiscard]] std::uint32_t find(std::uint64_t id) const noexcept { return cells_[cell_of(id)].place; }

  /// Inserts an id that is not here; `place` is not kNone.
  void insert(std::uint64_t id, std::uint32_t place) {
    if (2 * (count_ + 1) > cells_.size()) {
      grow();
    }
    cells_[cell_of(id)] = {id, place};
    ++count_;
  }

  /// Removes an id that is here. Cells behind it move up, so that no search ends too early.
  void erase(std::uint64_t id) noexcept {
    std::size_t hole = cell_of(id);
    for (std::size_t cell = next(hole); cells_[cell].place != kNone; cell = next(cell)) {
      const std::size_t home = first_cell(cells_[cell].id);
      if (((cell - home) & mask()) >= ((cell - hole) & mask())) {
        cells_[hole] = cells_[cell];
        hole = cell;
      }
    }
    cells_[hole].place = kNone;
    --count_;
  }

  /// Returns the handle of its memory, for PagePool::compact().
  [[nodiscard]] memory::Block& block() noexcept { return cells_.block(); }

 private:
  struct Cell {
    std::uint64_t id = 0;
    std::uint32_t place = kNone;
  };
  using Cells = memory::PagedVector<Cell, memory::MemoryUse::tables>;

  static Cells empty_cells(std::size_t count) {
    Cells cells(count);
    std::fill(cells.begin(), cells.end(), Cell());
    return cells;
  }

  [[nodiscard]] std::size_t mask() const noexcept { return cells_.size() - 1; }
  [[nodiscard]] std::size_t next(std::size_t cell) const noexcept { return (cell + 1) & mask(); }
  [[nodiscard]] std::size_t first_cell(std::uint64_t id) const noexcept { return mix(id) & mask(); }
  /// The cell that has the id, or would get it.
  [[nodiscard]] std::size_t cell_of(std::uint64_t id) const noexcept {
    std::size_t cell = first_cell(id);
    while (cells_[cell].place != kNone && cells_[cell].id != id) {
      cell = next(cell);
    }
    return cell;
  }
  void grow() {
    const Cells old = std::exchange(cells_, empty_cells(2 * cells_.size()));
    for (const Cell& cell : old) {
      if (cell.place != kNone) {
        cells_[cell_of(cell.id)] = cell;
      }
    }
  }

  Cells cells_;  // a power of two; at most half are taken
  std::size_t count_ = 0;
};

}  // namespace gradwire::table
