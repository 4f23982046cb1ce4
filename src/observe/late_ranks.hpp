// Which ranks of a job are slow, judged from outside by what each rank's figures say. `gradwire top` and `gradwire
// report` ask here; the alert GradwireRankLate (docs/monitoring/alerts.yml) is the same rule as a query.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "observe/slow_ranks.hpp"

namespace gradwire::observe {

struct RankFromOutside {
  double exposed = std::numeric_limits<double>::quiet_NaN();  // share of its time that waits; not finite: not known
  std::optional<bool> agreed = {};                            // whether ranks that compare themselves say it is slow
  std::string_view part = {};                                 // ranks of one part are compared with each other
};

struct WaitedFor {
  double share = 0;  // of the time that the median of the others waits longer than this rank
  bool is_slow = false;
};

/// Where ranks compare themselves (slow_ranks.hpp), what they agreed on alone decides. Elsewhere a rank is slow if its
/// share of exposed time is kSlowShare or more below the median of the others, and below the median of all: at most
/// half of the ranks are.
[[nodiscard]] std::vector<WaitedFor> waited_for(std::span<const RankFromOutside> ranks);

}  // namespace gradwire::observe
