// The page pool gets its regions from here: anonymous memory of the system, in huge pages if there are any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "memory/page_runs.hpp"
#include "memory/placement.hpp"

namespace gradwire::memory {

enum class HugePages : std::uint8_t {
  madvise,    // the kernel makes huge pages where it finds some (MADV_HUGEPAGE)
  hugetlbfs,  // pages that an administrator has set aside; madvise once these are used up
  off,        // pages of 4 KiB
};

[[nodiscard]] std::string_view to_string(HugePages pages) noexcept;

/// Names the ways in which memory that may reveal training data is protected.
struct Protection {
  bool not_dumped = false;  // leaves it out of core dumps (MADV_DONTDUMP)
  bool locked = false;      // keeps it out of swap (mlock), which takes the pages at once
};

/// This is the source of regions. Any thread may call it, but one at a time.
class PageSource {
 public:
  PageSource() = default;
  PageSource(const PageSource&) = delete;
  PageSource& operator=(const PageSource&) = delete;
  virtual ~PageSource() = default;

  /// Maps zeroed memory, aligned to kRegionBytes; `bytes` is a multiple of that. Returns null if there is none.
  [[nodiscard]] virtual std::byte* map(std::size_t bytes, HugePages huge) noexcept = 0;
  /// Gives memory back. It may be a part of what one map() returned, or touch several; both ends are aligned.
  virtual void unmap(std::byte* memory, std::size_t bytes) noexcept = 0;
  /// Protects all memory, given out before or from now on, in these ways as well as in those of earlier calls.
  /// Error(unsupported), which names the limit, where the system refuses; memory from now on is then as before the
  /// call.
  virtual void protect(Protection /*added*/) {}
  /// Returns the reason why map() last returned null, for messages.
  [[nodiscard]] virtual std::string why() const = 0;
  /// Returns what kind of pages the last map() gave, for reports.
  [[nodiscard]] virtual HugePages given() const noexcept = 0;
};

class SystemPages final : public PageSource {
 public:
  [[nodiscard]] std::byte* map(std::size_t bytes, HugePages huge) noexcept override;
  void unmap(std::byte* memory, std::size_t bytes) noexcept override;
  void protect(Protection added) override;
  [[nodiscard]] std::string why() const override;
  [[nodiscard]] HugePages given() const noexcept override { return given_; }

  /// Asks from now on for pages on the node of `placement`, which must outlive this; null: wherever they are touched.
  void bind_to(const Placement* placement) noexcept { placement_ = placement; }

 private:
  void bind(std::byte* memory, std::size_t bytes) const noexcept;
  [[nodiscard]] std::byte* map_unprotected(std::size_t bytes, HugePages huge) noexcept;
  [[nodiscard]] bool protect(std::byte* memory, std::size_t bytes, Protection wanted) noexcept;

  std::atomic<const Placement*> placement_ = nullptr;
  Protection protection_;
  std::map<PageAddress, std::size_t> mapped_;  // begin to bytes
  std::atomic<const char*> call_ = "mmap";     // that failed
  std::atomic<int> error_ = 0;
  std::atomic<HugePages> given_ = HugePages::off;
};

}  // namespace gradwire::memory
