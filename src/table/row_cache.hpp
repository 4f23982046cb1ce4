// A cache of other ranks' rows with a bound on memory; the least recently used ones leave first. Each entry knows when
// it was last compared with its owner's row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/block.hpp"
#include "table/flat_index.hpp"

namespace gradwire::table {

class RowCache {
 public:
  struct Entry {
    std::uint64_t id = 0;
    std::uint64_t sequence = 0;    // the owner's when it was last compared: newer versions are not here
    std::uint64_t complete = 0;    // the owner's clock then
    bool written = false;          // this rank pushed to it since
    std::uint32_t generation = 0;  // of the cache when the owner was asked; an older one must not be used
    std::uint32_t newer = 0, older = 0;
  };

  /// `bytes` bounds all memory of the cache; too few for a row give an empty cache. Allocates here, but touches the
  /// memory later. Throws std::bad_alloc.
  RowCache(std::uint64_t bytes, std::uint32_t width);

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(index_.count()); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count() * row_bytes_; }
  /// The entry of a row, null if it is not here. Valid until the next put().
  [[nodiscard]] Entry* find(std::uint64_t id) noexcept;
  [[nodiscard]] const float* values(const Entry& entry) const noexcept;
  /// Makes the entry the most recently used one.
  void touch(Entry& entry) noexcept;
  /// Adds or replaces an entry. Returns null if the cache has no room for any row.
  Entry* put(std::uint64_t id, const float* values);
  /// From here on no entry may be used without asking its owner. All ranks call it equally often.
  void distrust() noexcept { ++generation_; }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
  void clear() noexcept;

  /// The total bytes that a row takes.
  [[nodiscard]] static std::uint64_t bytes_per_row(std::uint32_t width) noexcept;

 private:
  static constexpr std::uint32_t kEnd = FlatIndex::kNone;

  void unlink(Entry& entry) noexcept;
  void link_first(Entry& entry) noexcept;
  [[nodiscard]] std::uint32_t place(const Entry& entry) const noexcept {
    return static_cast<std::uint32_t>(&entry - entries_.data());
  }
  [[nodiscard]] float* all_values() const noexcept { return reinterpret_cast<float*>(memory_.data()); }

  std::uint32_t width_;
  std::uint64_t row_bytes_;
  std::uint32_t capacity_;
  memory::Block memory_;        // of all values
  std::vector<Entry> entries_;  // grows to the capacity; then entries are reused
  FlatIndex index_;
  std::uint32_t newest_ = kEnd, oldest_ = kEnd;
  std::uint32_t generation_ = 0;
};

}  // namespace gradwire::table
