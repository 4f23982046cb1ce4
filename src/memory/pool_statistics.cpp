#include <algorithm>
#include <array>
#include <string>

#include "base/units.hpp"
#include "memory/page_pool.hpp"

namespace gradwire::memory {

std::string_view to_string(MemoryUse use) noexcept {
  switch (use) {
    case MemoryUse::frames: return "frames";
    case MemoryUse::residuals: return "residuals";
    case MemoryUse::tables: return "tables";
    case MemoryUse::copies: return "copies";
    case MemoryUse::staging: return "staging";
  }
  return "?";
}

std::string_view to_string(HugePages pages) noexcept {
  constexpr std::array<std::string_view, 3> kPages = {"transparent huge pages", "pages of hugetlbfs", "pages of 4 KiB"};
  return kPages[static_cast<std::size_t>(pages)];
}

double PagePoolStatistics::fragmentation() const noexcept {
  return free() == 0 ? 0 : 1 - static_cast<double>(std::min(longest_free, free())) / static_cast<double>(free());
}

std::string PagePoolStatistics::to_text() const {
  std::string text = format_bytes(in_use) + " in use";
  for (std::size_t use = 0; use < kMemoryUses; ++use) {
    if (uses[use].high_water > 0) {
      text += ", " + std::string(to_string(static_cast<MemoryUse>(use))) + ' ' + format_bytes(uses[use].in_use) +
              " (at most " + format_bytes(uses[use].high_water) + ')';
    }
  }
  return text + "; " + format_bytes(reserved) + " reserved (at most " + format_bytes(reserved_high_water) + ") of " +
         format_bytes(limit) + ", " + std::string(to_string(pages));
}

}  // namespace gradwire::memory
