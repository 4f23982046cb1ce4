// Keeps free runs of pages, by address and by length. Neighbours are joined. It neither maps memory nor touches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace gradwire::memory {

inline constexpr std::size_t kPageBytes = 4096;
/// What the pool takes from the system and gives back: one huge page.
inline constexpr std::size_t kRegionBytes = std::size_t{2} << 20;
inline constexpr std::size_t kRegionPages = kRegionBytes / kPageBytes;

/// The address of a page; null: none.
using PageAddress = std::uintptr_t;

[[nodiscard]] inline std::byte* memory_at(PageAddress address) noexcept {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): pages are counted as numbers
}
[[nodiscard]] inline PageAddress address_of(const std::byte* memory) noexcept {
  return reinterpret_cast<PageAddress>(memory);
}

struct PageRun {
  PageAddress begin = 0;
  std::size_t pages = 0;
  [[nodiscard]] PageAddress end() const noexcept { return begin + pages * kPageBytes; }
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

class PageRuns {
 public:
  /// Adds a run, no page of which is here, and joins it with its neighbours.
  void add(PageRun run);
  /// Takes the last `pages` pages of the shortest run that has as many, of several such the one at the lowest address.
  /// Returns 0 if there is none. The system maps new regions below the older ones, so that what is left of a run joins
  /// the next region.
  [[nodiscard]] PageAddress take(std::size_t pages);
  /// Takes all free pages in [begin, end).
  std::vector<PageRun> take_all_between(PageAddress begin, PageAddress end);

  /// Returns the runs by address.
  [[nodiscard]] const std::map<PageAddress, std::size_t>& by_address() const noexcept { return by_address_; }
  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t longest() const noexcept { return by_length_.empty() ? 0 : by_length_.rbegin()->first; }

 private:
  using Place = std::map<PageAddress, std::size_t>::iterator;
  void insert(PageRun run);
  Place erase(Place place);

  std::map<PageAddress, std::size_t> by_address_;            // begin to pages
  std::set<std::pair<std::size_t, PageAddress>> by_length_;  // the same runs
  std::size_t pages_ = 0;
};

}  // namespace gradwire::memory
