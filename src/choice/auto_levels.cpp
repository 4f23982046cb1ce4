#include "choice/auto_levels.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/units.hpp"
#include "exchange/model/cost_model.hpp"

namespace gradwire::choice {
namespace {

std::string milliseconds(double seconds) {
  constexpr double kThousand = 1000;
  return format_number(seconds * kThousand, 3) + " ms";
}

// Returns the forecast with each level of better quality than the current one slower by `margin`.
StepForecast doubted(const StepForecast& forecast, const Levels& levels, double margin) {
  StepForecast doubt = forecast;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    for (std::size_t level = 0; level < levels[i]; ++level) {
      doubt.buckets[i].seconds[level] *= 1 + margin;
    }
  }
  return doubt;
}

}  // namespace

double step_seconds(const StepForecast& forecast, const Levels& levels) {
  std::vector<exchange::BucketCost> costs;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const BucketForecast& bucket = forecast.buckets[i];
    costs.push_back({bucket.ready_seconds, bucket.seconds[levels[i]]});
  }
  return exchange::step_cost(forecast.compute_seconds, costs).seconds;
}

Levels best_levels(const StepForecast& forecast, double tolerance) {
  Levels levels;
  for (const BucketForecast& bucket : forecast.buckets) {
    const auto end = bucket.seconds.begin() + static_cast<std::ptrdiff_t>(bucket.most) + 1;
    levels.push_back(static_cast<std::size_t>(std::min_element(bucket.seconds.begin(), end) - bucket.seconds.begin()));
  }
  // Buckets that start first are hidden best, so they are the first to get better quality.
  const double limit = step_seconds(forecast, levels) * (1 + tolerance);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::size_t fastest = levels[i];
    for (levels[i] = 0; levels[i] < fastest && step_seconds(forecast, levels) > limit;) {
      ++levels[i];
    }
  }
  return levels;
}

void AutoLevels::start(std::uint64_t step, const StepForecast& forecast) {
  levels_ = best_levels(forecast, options_.tolerance);
  changed_ = step;
  dwell_ = options_.dwell;
  direction_ = 0;
}

// Moves by one level, or past levels on the way that would make the step longer.
Levels AutoLevels::moved_towards(const StepForecast& forecast, const Levels& target) const {
  Levels next = levels_;
  const auto move = [&](bool first) {
    bool moved = false;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const bool open = first || next[i] != levels_[i];
      if (open && next[i] != target[i]) {
        next[i] += next[i] < target[i] ? 1 : -1;
        moved = true;
      }
    }
    return moved;
  };
  move(true);
  const double now = step_seconds(forecast, levels_) * (1 + options_.tolerance);
  while (step_seconds(forecast, next) > now && move(false)) {
  }
  return next;
}

std::optional<Change> AutoLevels::update(std::uint64_t step, const StepForecast& forecast) {
  Levels allowed = levels_;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    allowed[i] = std::min(allowed[i], forecast.buckets[i].most);
  }
  if (allowed != levels_) {
    changed_ = step;
    return Change{step, std::exchange(levels_, allowed), levels_, "quality", "guard"};
  }
  if (step < changed_ + options_.dwell) {
    return std::nullopt;
  }
  const double now = step_seconds(forecast, levels_);
  Levels target = best_levels(forecast, options_.tolerance);
  const double gain = 1 - step_seconds(forecast, target) / now;
  const bool faster = gain > options_.gain;
  if (gain < options_.urgent && step < changed_ + dwell_) {
    return std::nullopt;
  }
  if (!faster) {
    // There is no time to win, but perhaps quality, if there is room for doubt.
    const StepForecast doubt = doubted(forecast, levels_, options_.margin);
    for (std::size_t i = 0; i < target.size(); ++i) {
      target[i] = std::min(target[i], levels_[i]);
    }
    if (target == levels_ || step_seconds(doubt, target) > now * (1 + options_.tolerance)) {
      return std::nullopt;
    }
  }
  const Levels next = moved_towards(forecast, target);
  if (next == levels_) {
    return std::nullopt;
  }
  const int direction = std::accumulate(next.begin(), next.end(), std::size_t{0}) >
                                std::accumulate(levels_.begin(), levels_.end(), std::size_t{0})
                            ? 1
                            : -1;
  if (direction != -direction_) {
    dwell_ = options_.dwell;
  } else if (gain < options_.urgent) {
    dwell_ *= 2;
  }
  direction_ = direction;
  changed_ = step;
  Change change{step, std::exchange(levels_, next), levels_, {}, faster ? "faster" : "quality"};
  change.reason = (faster ? "step " : "better quality, step ") + milliseconds(now) + " -> " +
                  milliseconds(step_seconds(forecast, levels_));
  return change;
}

}  // namespace gradwire::choice
