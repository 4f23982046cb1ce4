#include "choice/auto_choice.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "exchange/default_codecs.hpp"
#include "exchange/model/sizes.hpp"

namespace gradwire::choice {
namespace {

constexpr double kLinkBound = 0.3;    // share of waiting from which the rate of sending is mostly the link's
constexpr double kOnlyTheLink = 0.8;  // share of waiting from which it is the link's alone

constexpr double kAsGood = 1.1;   // factor between two forecasts that explain a step equally well
constexpr double kFarRate = 1.5;  // factor between two rates of the link that scatter does not explain

constexpr std::uint64_t kTrialSteps = 5;
constexpr std::uint64_t kFirstInterval = 100;  // steps between two trials of a neighbour, doubled each time
constexpr double kWorthATrial =
    0.6;                         // share by which the forecast of a trial may exceed the step, since models are wrong
constexpr double kSpare = 1e-3;  // share of the time since the start for trials that seem far slower: their forecasts
                                 // may rest on a disturbed start
constexpr double kMeasuredApart =
    100e-6;  // seconds that are also allowed, since ranks began the measurements at the start apart

double apart(double a, double b) { return a > b ? a / b : b / a; }

std::vector<std::vector<double>> bits_of(const plan::Plan& plan) {
  constexpr double kExactBits = 32;
  std::vector<std::vector<double>> bits;
  for (const plan::Bucket& bucket : plan.buckets) {
    std::vector<double>& of_bucket = bits.emplace_back();
    for (const policy::Level& level : bucket.levels) {
      of_bucket.push_back(of_bucket.empty() ? kExactBits : exchange::bits_per_element(level.stage.codec));
    }
    if (of_bucket.empty()) {
      of_bucket.push_back(kExactBits);  // its codec is not chosen: one level stands for it
    }
  }
  return bits;
}

}  // namespace

LinkReport combined(const std::vector<LinkReport>& reports) {
  LinkReport all = reports[0];
  for (const LinkReport& one : reports) {
    all.step_seconds = std::max(all.step_seconds, one.step_seconds);
    all.busy_seconds = std::min(all.busy_seconds, one.busy_seconds);  // others waited for their peers as well
    all.bytes_per_second = std::max(all.bytes_per_second, one.bytes_per_second);
    all.wait_share = std::min(all.wait_share, one.wait_share);
    if (one.probed > 0) {
      all.probed = all.probed > 0 ? std::min(all.probed, one.probed) : one.probed;
    }
    for (std::size_t i = 0; i < all.ready_seconds.size(); ++i) {
      all.ready_seconds[i] = std::max(all.ready_seconds[i], one.ready_seconds[i]);
    }
  }
  return all;
}

bool only_the_link(const LinkReport& report) { return report.wait_share > kOnlyTheLink; }

double bandwidth_after(double before, const LinkReport& report) {
  if (only_the_link(report) || (report.wait_share > kLinkBound && !(report.probed > 0))) {
    return report.bytes_per_second > 0 ? report.bytes_per_second : before;
  }
  return std::max(report.probed > 0 ? report.probed : before, report.bytes_per_second);
}

AutoChoice::AutoChoice(const plan::Plan& plan, const Policy& policy)
    : plan_(plan),
      tries_(policy.auto_options.cost > 0),
      auto_levels_({.gain = policy.auto_options.gain, .dwell = policy.auto_options.dwell}),
      guard_({}, bits_of(plan)),
      choices_(plan.buckets.size()) {}

Change AutoChoice::start(std::uint64_t step, Measurements measured) {
  measurements_ = std::move(measured);
  started_ = step;
  earlier_.clear();
  guard_.begin(step);
  for (Neighbour& neighbour : neighbours_) {
    neighbour.due = step;
    neighbour.interval = kFirstInterval;
  }
  auto_levels_.start(step, forecast(step, nullptr));
  apply(auto_levels_.levels());
  return {step, {}, auto_levels_.levels(), {}, "start"};
}

AutoChoice::Decision AutoChoice::decide(std::uint64_t step, const LinkReport& report,
                                        std::span<const QualitySample> samples) {
  learn(report);
  Decision decision;
  const std::string harm = guard(step, samples);
  decision.moved = std::exchange(trying_, false);
  const StepForecast next = forecast(step + 1, &report);
  decision.change = auto_levels_.update(step + 1, next);
  if (decision.change) {
    decision.moved = true;
    if (!harm.empty() && decision.change->cause == "guard") {
      decision.change->reason = harm;
    }
  } else if (!decision.moved) {
    if (const std::optional<Levels> trial = next_trial(step + 1, next)) {
      trying_ = decision.moved = true;
      decision.trial = kTrialSteps;
      apply(*trial);
      return decision;
    }
  }
  apply(auto_levels_.levels());
  return decision;
}

// The rate of sending and a probe see the link in different ways: a sum by the transport moves bytes faster than frames
// do, and a probe has the caches to itself. If ranks wait for more than the link, the steps must confirm that the link
// changed, or forecasts of other levels would depend on how it was measured. A probe is late by some decisions, which
// attributed the change to the codec, so the forecasts from before those decisions are asked. Only ratios are compared,
// which are the same on every machine.
void AutoChoice::learn_link(const LinkReport& report) {
  double& rate = measurements_.cluster.inter.bytes_per_second;
  const double before = rate;
  const double after = bandwidth_after(before, report);
  if (only_the_link(report)) {
    rate = after;
    return;
  }
  const std::vector<Ways>& buckets = earlier_.empty() ? measurements_.buckets : earlier_.front();
  const auto misfit = [&](double bytes_per_second) {
    rate = bytes_per_second;
    const double busy = forecast_busy(buckets);
    return busy > 0 && report.busy_seconds > 0 ? apart(report.busy_seconds, busy) : 1;
  };
  const bool far = apart(after, before) > kFarRate;
  const double allowed = misfit(before) * (far ? kAsGood : 1);
  const bool believed = misfit(after) <= allowed;
  rate = believed ? after : before;
  if (believed && far && !earlier_.empty()) {
    measurements_.buckets = std::move(earlier_.front());
    earlier_.clear();
  }
}

// A trial says something about its own levels only.
void AutoChoice::learn(const LinkReport& report) {
  if (!trying_) {
    learn_link(report);
    earlier_.push_back(measurements_.buckets);
    if (earlier_.size() > kLate) {
      earlier_.pop_front();
    }
  }
  correct(measurements_.buckets, report.busy_seconds);
  for (std::size_t i = 0; trying_ && i < earlier_.size(); ++i) {
    correct(earlier_[i], report.busy_seconds);
  }
}

void AutoChoice::correct(std::vector<Ways>& buckets, double busy_seconds) const {
  const double busy = forecast_busy(buckets);
  if (!(busy > 0) || !(busy_seconds > 0)) {
    return;
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    buckets[i].levels[choices_[i].level].correct(busy_seconds / busy, trying_);
  }
}

std::string AutoChoice::guard(std::uint64_t step, std::span<const QualitySample> samples) {
  std::string reason;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::string why = guard_.observe(step, i, choices_[i].level, samples[i]);
    if (!why.empty()) {
      reason = "bucket " + std::to_string(i) + ": " + why;
    }
  }
  return reason;
}

double AutoChoice::forecast_busy(const std::vector<Ways>& buckets) const {
  double seconds = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto& levels = buckets[i].levels;
    if (levels.empty()) {
      return 0;  // part of the measured time has no forecast
    }
    seconds += levels[choices_[i].level].seconds(measurements_.cluster, static_cast<double>(plan_.buckets[i].count));
  }
  return seconds;
}

StepForecast AutoChoice::forecast(std::uint64_t step, const LinkReport* report) const {
  StepForecast all;
  for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
    BucketForecast& bucket = all.buckets.emplace_back();
    bucket.ready_seconds = report == nullptr ? 0 : report->ready_seconds[i];
    bucket.most = std::min(guard_.most(step, i), plan_.most_level);
    for (const exchange::LevelForecast& level : measurements_.buckets[i].levels) {
      bucket.seconds.push_back(level.seconds(measurements_.cluster, static_cast<double>(plan_.buckets[i].count)));
    }
    if (bucket.seconds.empty()) {
      bucket.seconds.push_back(0);  // the policy names its codec
    }
    all.compute_seconds = std::max(all.compute_seconds, bucket.ready_seconds);
  }
  return all;
}

std::optional<Levels> AutoChoice::next_trial(std::uint64_t step, const StepForecast& forecast) {
  if (!tries_ || !(forecast_busy(measurements_.buckets) > 0)) {
    return std::nullopt;  // the effect of a trial could not be told apart
  }
  const Levels& levels = auto_levels_.levels();
  const double now = step_seconds(forecast, levels);
  const double spare = kSpare * static_cast<double>(step - started_) * now / static_cast<double>(kTrialSteps);
  const double most = std::max((1 + kWorthATrial) * now + kMeasuredApart, spare);
  std::array<Levels, kNeighbours> targets;
  for (std::size_t n = 0; n < kNeighbours; ++n) {
    targets[n] = neighbour(neighbours_[n].direction, forecast);
  }
  for (std::size_t n = 0; n < kNeighbours; ++n) {
    const Levels& target = targets[n];
    if (target == levels || step < neighbours_[n].due || step_seconds(forecast, target) > most) {
      continue;
    }
    for (std::size_t same = 0; same < kNeighbours; ++same) {
      if (targets[same] == target) {  // one level above dense, two directions lead to the same levels
        neighbours_[same].due = step + neighbours_[same].interval;
        neighbours_[same].interval *= 2;
      }
    }
    return target;
  }
  return std::nullopt;
}

Levels AutoChoice::neighbour(int direction, const StepForecast& forecast) const {
  Levels levels = auto_levels_.levels();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const auto next = std::max<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(levels[i]) + direction);
    if (next <= static_cast<std::ptrdiff_t>(forecast.buckets[i].most)) {
      levels[i] = static_cast<std::size_t>(next);
    }
  }
  return levels;
}

void AutoChoice::apply(const Levels& levels) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Ways& ways = measurements_.buckets[i];
    choices_[i] = {levels[i], levels[i] == 0 && ways.native, plan_.host_chunk_bytes()};
    if (!ways.levels.empty() && !plan_.chunk_bytes) {
      choices_[i].chunk_bytes = exchange::best_chunk_bytes(measurements_.cluster, ways.levels[levels[i]].way(),
                                                           static_cast<double>(plan_.buckets[i].count));
    }
  }
}

}  // namespace gradwire::choice
