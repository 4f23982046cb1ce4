#include "choice/batch_advisor.hpp"

#include <algorithm>
#include <cmath>

#include "base/units.hpp"

namespace gradwire::choice {
namespace {

constexpr double kRounding = 1e-9;  // error of a quotient that ought to be whole

std::string percent(double share) {
  constexpr double kHundred = 100;
  return format_number(share * kHundred, 3) + "%";
}

}  // namespace

double exposed_share(const BatchForecast& forecast, double accumulation) {
  const double step = accumulation * forecast.compute_seconds + forecast.exposed_seconds;
  return step > 0 ? forecast.exposed_seconds / step : 0;
}

double BatchAdvisor::learning_rate_factor() const {
  const double factor = accumulation_;
  return options_.batch.scaling == BatchScaling::linear ? factor : std::sqrt(factor);
}

std::uint32_t BatchAdvisor::wanted(const BatchForecast& forecast, double exposed_factor, double noise_factor) const {
  const Policy::Batch& batch = options_.batch;
  const double low = batch.min_accumulation;
  // e / (a c + e) <= t, solved for a.
  const double target = batch.target_exposed;
  double count = std::ceil(
      forecast.exposed_seconds * exposed_factor * (1 - target) / (target * forecast.compute_seconds) - kRounding);
  if (forecast.noise_scale) {
    count = std::min(count, std::floor(*forecast.noise_scale * noise_factor / forecast.ranks + kRounding));
  }
  return static_cast<std::uint32_t>(std::clamp(count, low, static_cast<double>(batch.max_accumulation)));
}

std::optional<std::string> BatchAdvisor::update(std::uint64_t step, const BatchForecast& forecast) {
  if (!(forecast.compute_seconds > 0) || !(forecast.exposed_seconds >= 0) || !std::isfinite(forecast.compute_seconds) ||
      !std::isfinite(forecast.exposed_seconds) || step < changed_ + options_.dwell) {
    return std::nullopt;
  }
  const std::uint32_t before = accumulation_;
  const double share = exposed_share(forecast, before);
  std::uint32_t next = before;
  if (share > options_.batch.target_exposed) {
    next = std::clamp(wanted(forecast, options_.headroom, 1), before, 2 * before);
  }
  if (next == before) {
    next = std::min(before, std::max(wanted(forecast, options_.margin, options_.margin), (before + 1) / 2));
  }
  if (next == before) {
    return std::nullopt;
  }
  accumulation_ = next;
  changed_ = step;
  std::string why =
      "exposed communication " + percent(share) + " of a step, target " + percent(options_.batch.target_exposed);
  if (forecast.noise_scale) {
    why += ", noise scale " +
           (std::isinf(*forecast.noise_scale) ? "beyond measure" : format_number(*forecast.noise_scale, 3));
  }
  return why;
}

}  // namespace gradwire::choice
