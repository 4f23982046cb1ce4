#include "cli/waiting.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gradwire::cli {

std::vector<WaitedFor> waited_for(std::span<const double> exposed) {
  std::vector<WaitedFor> result(exposed.size());
  std::vector<double> sorted;
  std::copy_if(exposed.begin(), exposed.end(), std::back_inserter(sorted), [](double v) { return std::isfinite(v); });
  std::sort(sorted.begin(), sorted.end());
  if (sorted.size() < 2) {
    return result;
  }
  std::size_t below = 0;
  for (std::size_t i = 0; i < exposed.size(); ++i) {
    if (!std::isfinite(exposed[i])) {
      continue;
    }
    // The median without this one, found in the order of all.
    const auto own =
        static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), exposed[i]) - sorted.begin());
    const auto other = [&](std::size_t at) { return sorted[at < own ? at : at + 1]; };
    const std::size_t others = sorted.size() - 1;
    const double median = others % 2 == 1 ? other(others / 2) : (other(others / 2 - 1) + other(others / 2)) / 2;
    result[i].share = median - exposed[i];
    below += result[i].share >= kNoticeableWait ? 1 : 0;
  }
  for (WaitedFor& each : result) {
    each.is_slow = each.share >= kNoticeableWait && 2 * below <= sorted.size();
  }
  return result;
}

}  // namespace gradwire::cli
