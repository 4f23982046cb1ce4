#include "watch/timeline/clock_fit.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "watch/timeline/bounded.hpp"

namespace gradwire::watch::timeline {
namespace {

constexpr std::int64_t kWindow = 2'000'000'000;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

struct Reached {
  std::int64_t ahead = 0;
  std::int64_t error = 0;
};

/// The quickest messages between each two clocks in a window of time.
class Quickest {
 public:
  void take(const Exchange& exchange) {
    const std::int64_t took = bounded(exchange.seen - exchange.sent);
    const auto [at, fresh] = least_.try_emplace({exchange.from, exchange.to}, took);
    at->second = std::min(at->second, took);
  }

  // The results by clock; nothing for a clock that messages do not connect with clock 0.
  [[nodiscard]] std::vector<std::optional<Reached>> from_first(std::size_t clocks) const {
    std::vector<std::optional<Reached>> best(clocks);
    std::vector<bool> done(clocks);
    best[0] = Reached{};
    for (;;) {
      std::size_t next = clocks;
      for (std::size_t i = 0; i < clocks; ++i) {
        if (best[i] && !done[i] && (next == clocks || best[i]->error < best[next]->error)) {
          next = i;
        }
      }
      if (next == clocks) {
        return best;
      }
      done[next] = true;
      for (std::size_t other = 0; other < clocks; ++other) {
        relax(static_cast<int>(next), static_cast<int>(other), best);
      }
    }
  }

 private:
  void relax(int from, int to, std::vector<std::optional<Reached>>& best) const {
    const auto there = least_.find({from, to});
    const auto back = least_.find({to, from});
    if (there == least_.end() || back == least_.end()) {
      return;
    }
    const Reached& known = *best[static_cast<std::size_t>(from)];
    std::optional<Reached>& found = best[static_cast<std::size_t>(to)];
    // The sum is below 0 where a clock drifts faster than messages travel.
    const std::int64_t error = bounded(known.error + std::abs(there->second + back->second) / 2);
    if (!found || error < found->error) {
      found = Reached{bounded(known.ahead + (there->second - back->second) / 2), error};
    }
  }

  std::map<std::pair<int, int>, std::int64_t> least_;
};

}  // namespace

std::int64_t ClockFit::common(std::int64_t time) const {
  const auto after = std::upper_bound(knots.begin(), knots.end(), time,
                                      [](std::int64_t t, const Knot& knot) { return t < knot.time; });
  if (knots.empty() || after == knots.begin()) {
    return bounded(time - (knots.empty() ? 0 : knots.front().ahead));
  }
  const Knot& before = *std::prev(after);
  if (after == knots.end()) {
    return bounded(time - before.ahead);
  }
  const double share = static_cast<double>(time - before.time) / static_cast<double>(after->time - before.time);
  return bounded(bounded(time - before.ahead) - to_time(share * static_cast<double>(after->ahead - before.ahead)));
}

std::vector<ClockFit> fit_clocks(std::span<const std::int64_t> dates, std::span<const Exchange> exchanges) {
  const std::size_t clocks = dates.size();
  std::vector<ClockFit> fits(clocks);
  if (clocks == 0) {
    return fits;
  }
  Quickest whole;
  for (const Exchange& exchange : exchanges) {
    whole.take(exchange);
  }
  const auto all = whole.from_first(clocks);
  std::int64_t first = kNever;
  std::int64_t last = -kNever;
  const auto by_date = [&](std::size_t clock) { return bounded(dates[0] - dates[clock]); };
  const auto rough = [&](const Exchange& exchange) {
    const auto& by = all[static_cast<std::size_t>(exchange.from)];
    return bounded(exchange.sent - (by ? by->ahead : by_date(static_cast<std::size_t>(exchange.from))));
  };
  for (const Exchange& exchange : exchanges) {
    first = std::min(first, rough(exchange));
    last = std::max(last, rough(exchange));
  }
  const std::int64_t span = exchanges.empty() ? 0 : last - first;
  const std::int64_t last_window = std::max<std::int64_t>(span / kWindow, 1) - 1;  // it may be twice as long
  std::map<std::int64_t, Quickest> windows;
  for (const Exchange& exchange : exchanges) {
    windows[std::min((rough(exchange) - first) / kWindow, last_window)].take(exchange);
  }
  for (const auto& [window, quickest] : windows) {
    const auto now = quickest.from_first(clocks);
    for (std::size_t i = 1; i < clocks; ++i) {
      if (now[i]) {
        const std::int64_t time = bounded(bounded(first + window * kWindow + kWindow / 2) + now[i]->ahead);
        fits[i].knots.push_back({time, now[i]->ahead});
        fits[i].error = std::max(fits[i].error, now[i]->error);
      }
    }
  }
  for (std::size_t i = 1; i < clocks; ++i) {
    if (fits[i].knots.empty()) {
      fits[i].known = all[i].has_value();
      fits[i].knots.push_back({0, all[i] ? all[i]->ahead : by_date(i)});
      fits[i].error = all[i] ? all[i]->error : 0;
    }
  }
  return fits;
}

}  // namespace gradwire::watch::timeline
