// Maps row ids to 32-bit numbers in 10 to 15 bytes a row (half as much again in tables of 2^32 rows or more). Its parts
// are small hash tables, which grow one by one; a copy of an index shares all parts with it, and whichever of the two
// writes to a part copies it first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory/paged_vector.hpp"
#include "table/hash_ring.hpp"

namespace gradwire::table {

class RecordIndex {
 public:
  using Number = std::uint32_t;
  static constexpr Number kNone = ~Number{0};

  /// All ids are below `rows`.
  explicit RecordIndex(std::uint64_t rows) noexcept : words_(rows > (std::uint64_t{1} << 32U) ? 3 : 2) {}
  RecordIndex(RecordIndex&&) noexcept = default;
  RecordIndex& operator=(RecordIndex&&) noexcept = default;

  [[nodiscard]] RecordIndex copy();

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Returns the memory of all parts, with those that copies share.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns the number of the id, or kNone.
  [[nodiscard]] Number find(std::uint64_t id) const noexcept;
  /// Inserts or replaces the number of the id; it is not kNone. May throw Error(out_of_memory), before any change.
  void set(std::uint64_t id, Number number);
  /// Removes an id that is here.
  void erase(std::uint64_t id);
  /// Adds the handles of its memory to `blocks`, for PagePool::compact(). There must be no copy.
  void add_blocks(std::vector<memory::Block*>& blocks);
  /// Calls visit(id, number) for every id, in no order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const std::shared_ptr<Part>& part : parts_) {
      for (std::uint32_t cell = 0; part != nullptr && cell < part->cells; ++cell) {
        if (number_in(*part, cell) != kNone) {
          visit(id_in(*part, cell), number_in(*part, cell));
        }
      }
    }
  }

 private:
  static constexpr std::uint32_t kPartBits = 10;
  struct Part {
    std::uint64_t writer = 0;  // the index that may write here
    std::uint32_t cells = 0;
    std::uint32_t count = 0;
    // A cell has the number, the low half of the id and, in large tables, its high half.
    memory::PagedVector<std::uint32_t, memory::MemoryUse::tables> words;
  };
  struct Place {
    std::uint32_t part, within;  // `within` scales to the cells of the part
  };

  RecordIndex(const RecordIndex&) = default;
  [[nodiscard]] static std::uint64_t new_writer() noexcept;
  // mix(id) is multiplied once more, because ranks hold rows by the order of mix(): the ids of one rank are neighbours.
  [[nodiscard]] static Place place_of(std::uint64_t id) noexcept {
    const std::uint64_t hash = mix(id) * 0xD6E8FEB86659FD93U;
    return {static_cast<std::uint32_t>(hash >> (64U - kPartBits)), static_cast<std::uint32_t>(hash >> 22U)};
  }
  [[nodiscard]] static std::uint32_t home_of(std::uint32_t within, std::uint32_t cells) noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{within} * cells) >> 32U);
  }
  [[nodiscard]] Number number_in(const Part& part, std::uint32_t cell) const noexcept {
    return part.words[std::size_t{cell} * words_];
  }
  [[nodiscard]] std::uint64_t id_in(const Part& part, std::uint32_t cell) const noexcept {
    const std::uint32_t* words = part.words.data() + std::size_t{cell} * words_;
    return words_ == 2 ? words[1] : std::uint64_t{words[2]} << 32U | words[1];
  }
  void put(Part& part, std::uint32_t cell, std::uint64_t id, Number number) const noexcept;
  /// Returns the cell that has the id, or would get it.
  [[nodiscard]] std::uint32_t cell_of(const Part& part, std::uint64_t id, std::uint32_t within) const noexcept;
  [[nodiscard]] std::shared_ptr<Part> empty_part(std::uint32_t cells) const;
  [[nodiscard]] Part& own_part(std::uint32_t number);

  std::uint32_t words_;  // of a cell
  std::uint64_t writer_ = new_writer();
  std::uint64_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<std::shared_ptr<Part>, std::size_t{1} << kPartBits> parts_ = {};  // null: empty
};

}  // namespace gradwire::table
