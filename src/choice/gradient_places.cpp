#include "choice/gradient_places.hpp"

#include <algorithm>
#include <unordered_map>

namespace gradwire::choice {
namespace {

using Kind = bool PlacedCall::*;  // of marks

// The mark of the very first call is not compared, since it is unknown what came before it.
bool marks_repeat(std::span<const PlacedCall> calls, Kind kind, std::size_t begin, std::size_t period) {
  for (std::size_t i = std::max<std::size_t>(begin, 1) + period; i < calls.size(); ++i) {
    if (calls[i].*kind != calls[i - period].*kind) {
      return false;
    }
  }
  return true;
}

bool any_mark(std::span<const PlacedCall> calls, Kind kind, std::size_t begin) {
  const std::span<const PlacedCall> later = calls.subspan(std::max<std::size_t>(begin, 1));
  return std::any_of(later.begin(), later.end(), [=](const PlacedCall& call) { return call.*kind; });
}

bool any_half(std::span<const PlacedCall> calls) {
  return std::any_of(calls.begin(), calls.end(), [](const PlacedCall& call) { return call.half; });
}

// How many calls before each call its address came last; 0: never, or the address is unknown.
std::vector<std::size_t> distances(std::span<const PlacedCall> calls) {
  std::unordered_map<std::uint64_t, std::size_t> latest;
  std::vector<std::size_t> distance(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].address != 0) {
      const auto [at, fresh] = latest.try_emplace(calls[i].address, i);
      distance[i] = fresh ? 0 : i - at->second;
      at->second = i;
    }
  }
  return distance;
}

// Whether the last calls at this place came `period` calls apart, and not in between.
bool comes_once(std::span<const std::size_t> distance, std::size_t period, std::size_t from_the_end,
                std::size_t steps) {
  for (std::size_t step = 0; step + 1 < steps; ++step) {
    if (distance[distance.size() - 1 - from_the_end - step * period] != period) {
      return false;
    }
  }
  return true;
}

bool any_gradient(std::span<const std::size_t> distance, std::size_t period) {
  for (std::size_t place = 0; place < period; ++place) {
    if (comes_once(distance, period, place, kStepsOfAPlace)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<bool> gradients_of_step(std::span<const PlacedCall> calls, std::size_t period, std::size_t steps) {
  std::vector<bool> gradients(period);
  if (calls.size() >= steps * period) {
    const std::vector<std::size_t> distance = distances(calls.last(steps * period));
    for (std::size_t place = 0; place < period; ++place) {
      gradients[period - 1 - place] = comes_once(distance, period, place, steps);
    }
  }
  return gradients;
}

std::size_t find_step(std::span<const PlacedCall> calls, std::size_t shortest) {
  const std::vector<std::size_t> distance = distances(calls);
  for (std::size_t period = shortest; period > 0 && kStepsOfAPlace * period <= calls.size(); period += shortest) {
    const std::size_t looked_at = std::max(kStepsOfAPlace * period, calls.size() / 2);
    const std::size_t begin = calls.size() - looked_at;
    if (!marks_repeat(calls, &PlacedCall::mark, begin, period)) {
      continue;
    }
    if (!any_mark(calls, &PlacedCall::mark, begin)) {
      const bool ambiguous = shortest == 1 || any_half(calls.last(period));
      const bool repeats = marks_repeat(calls, &PlacedCall::apart, begin, period);
      const bool early = calls.size() < kUnmarkedCalls && !any_mark(calls, &PlacedCall::apart, begin);
      // A job may send everything through a single buffer.
      if (period == 1 || (ambiguous && (early || !repeats))) {
        continue;
      }
    }
    if (any_gradient(distance, period)) {
      return period;
    }
  }
  return 0;
}

}  // namespace gradwire::choice
