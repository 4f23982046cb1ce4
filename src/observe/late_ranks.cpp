#include "observe/late_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "base/median.hpp"

namespace gradwire::observe {
namespace {

struct Part {
  std::vector<double> sorted;
  double median = 0;
};

double median_of_others(const std::vector<double>& sorted, double own) {
  const auto place = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), own) - sorted.begin());
  const auto other = [&](std::size_t at) { return sorted[at < place ? at : at + 1]; };
  const std::size_t others = sorted.size() - 1;
  return others % 2 == 1 ? other(others / 2) : (other(others / 2 - 1) + other(others / 2)) / 2;
}

}  // namespace

std::vector<WaitedFor> waited_for(std::span<const RankFromOutside> ranks) {
  std::map<std::string_view, Part> parts;
  for (const RankFromOutside& rank : ranks) {
    if (std::isfinite(rank.exposed)) {
      parts[rank.part].sorted.push_back(rank.exposed);
    }
  }
  for (auto& [name, part] : parts) {
    std::sort(part.sorted.begin(), part.sorted.end());
    part.median = median(part.sorted);
  }
  const bool agreed =
      std::any_of(ranks.begin(), ranks.end(), [](const RankFromOutside& rank) { return rank.agreed.has_value(); });
  std::vector<WaitedFor> result(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    bool is_late = false;
    if (std::isfinite(ranks[i].exposed) && parts[ranks[i].part].sorted.size() > 1) {
      const Part& part = parts[ranks[i].part];
      result[i].share = median_of_others(part.sorted, ranks[i].exposed) - ranks[i].exposed;
      is_late = result[i].share >= kSlowShare && ranks[i].exposed < part.median;
    }
    result[i].is_slow = agreed ? ranks[i].agreed.value_or(false) : is_late;
  }
  return result;
}

}  // namespace gradwire::observe
