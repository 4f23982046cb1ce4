// Which ranks of a job are slow, judged from outside by each rank's metrics. `gradwire top` and `gradwire report` use
// this; the alert GradwireRankLate (docs/monitoring/alerts.yml) is the same rule as a query.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "observe/slow_ranks.hpp"

namespace gradwire::observe {

struct RankFromOutside {
  double exposed = std::numeric_limits<double>::quiet_NaN();  // share of its time in which it waits; NaN: not known
  std::optional<bool> agreed = {};                            // whether ranks that compare themselves say it is slow
  std::string_view part = {};                                 // ranks of one part are compared with each other
};

struct WaitedFor {
  double share = 0;  // share of the time by which the median of the others waits longer than this rank
  bool is_slow = false;
};

/// Where ranks compare themselves (slow_ranks.hpp), their own result alone decides. Elsewhere a rank is slow if its
/// share of exposed time is kSlowShare or more below the median of the others, and below the median of all, so that at
/// most half of the ranks are slow.
[[nodiscard]] std::vector<WaitedFor> waited_for(std::span<const RankFromOutside> ranks);

}  // namespace gradwire::observe
