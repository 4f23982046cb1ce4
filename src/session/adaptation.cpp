#include "session/adaptation.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/log.hpp"
#include "base/units.hpp"
#include "plan/sizes.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kProbes = 3;
constexpr double kLinkBound = 0.3;         // share of waiting from which the link is what is seen, by and large
constexpr double kOnlyTheLink = 0.8;       // and from which it is that alone, so that nothing need be measured beside
constexpr double kShareOfTime = 5e-4;      // that ranks may spend comparing
constexpr std::uint64_t kMostBetween = 5;  // steps between comparisons that cost nothing
constexpr std::uint64_t kMostSteps = 100'000;  // between two comparisons
constexpr std::uint64_t kSampleEvery = 50;     // steps
constexpr double kProbeSeconds = 2e-3;
constexpr double kLeastProbe = 64 << 10;
constexpr double kMostProbe = 1 << 20;

std::vector<std::vector<double>> bits_of(const plan::Plan& plan) {
  constexpr double kExactBits = 32;
  std::vector<std::vector<double>> bits;
  for (const plan::Bucket& bucket : plan.buckets) {
    std::vector<double>& of_bucket = bits.emplace_back();
    for (const plan::Level& level : bucket.levels) {
      of_bucket.push_back(of_bucket.empty() ? kExactBits : plan::bits_per_element(level.stage.codec));
    }
    if (of_bucket.empty()) {
      of_bucket.push_back(kExactBits);  // not chosen: one level that stands for what it is
    }
  }
  return bits;
}

plan::QualitySample worse(const plan::QualitySample& a, const plan::QualitySample& b) {
  const auto most = [](double x, double y) { return std::isnan(x) || x > y ? x : y; };
  return {most(a.nmse, b.nmse), most(a.residual_ratio, b.residual_ratio)};
}

std::string level_name(const plan::Bucket& bucket, std::size_t level) {
  return level == 0 ? "dense" : bucket.levels[level].stage.codec.to_string();
}

}  // namespace

LinkReport combined(const std::vector<LinkReport>& reports) {
  LinkReport all = reports[0];
  std::vector<double> waits;
  for (const LinkReport& one : reports) {
    all.step_seconds = std::max(all.step_seconds, one.step_seconds);
    all.busy_seconds = std::min(all.busy_seconds, one.busy_seconds);  // others waited for their peers as well
    all.bytes_per_second = std::max(all.bytes_per_second, one.bytes_per_second);
    if (one.probed > 0) {
      all.probed = all.probed > 0 ? std::min(all.probed, one.probed) : one.probed;
    }
    waits.push_back(one.wait_share);
    for (std::size_t i = 0; i < all.ready_seconds.size(); ++i) {
      all.ready_seconds[i] = std::max(all.ready_seconds[i], one.ready_seconds[i]);
    }
  }
  all.wait_share = *std::min_element(waits.begin(), waits.end());
  return all;
}

bool link_bound(const LinkReport& report) { return report.wait_share > kLinkBound; }

double bandwidth_after(double before, const LinkReport& report) {
  if (report.wait_share > kOnlyTheLink || (link_bound(report) && !(report.probed > 0))) {
    return report.bytes_per_second > 0 ? report.bytes_per_second : before;
  }
  return std::max(report.probed > 0 ? report.probed : before, report.bytes_per_second);
}

Adaptation::Adaptation(Runner& runner, const plan::Plan& plan, const Policy& policy)
    : runner_(runner),
      plan_(plan),
      given_(policy.link),
      least_steps_(std::clamp<std::uint64_t>(policy.switching.dwell, 1, kMostBetween)),
      controller_({.gain = policy.switching.gain, .dwell = policy.switching.dwell}),
      guard_({}, bits_of(plan)),
      choices_(plan.buckets.size()),
      samples_(plan.buckets.size()),
      step_(policy.switching.window),
      busy_(policy.switching.window),
      wait_(policy.switching.window),
      bytes_(policy.switching.window),
      probed_(kProbes),
      ready_(plan.buckets.size(), plan::Window(policy.switching.window)),
      levels_(plan.buckets.size()) {}

void Adaptation::begin(std::uint64_t step) {
  calibration_ = calibrate(runner_, plan_, given_);
  begun_ = true;
  guard_.begin(step);
  first_ = step;
  next_ = step + least_steps_;
  {
    const std::lock_guard lock(mutex_);
    link_ = to_estimate(calibration_.cluster, calibration_.seconds);
  }
  if (runner_.world_size() == 1) {
    return;
  }
  controller_.start(step, forecast(step, nullptr));
  take(controller_.levels());
  note({step,
        {},
        controller_.levels(),
        "measured in " + format_number(calibration_.seconds * 1000, 3) +
            " ms: " + format_rate(calibration_.cluster.inter.bytes_per_second)});
}

bool Adaptation::samples(std::uint64_t step) const noexcept { return step % kSampleEvery == kSampleEvery - 1; }

void Adaptation::sampled(std::uint32_t bucket, const plan::QualitySample& sample) {
  samples_[bucket] = worse(samples_[bucket], sample);
}

void Adaptation::end_step(std::uint64_t step, const StepSeen& seen) {
  if (!begun_ || runner_.world_size() == 1) {
    return;
  }
  step_.add(seen.step_seconds);
  busy_.add(seen.busy_seconds);
  wait_.add(seen.wait_seconds);
  bytes_.add(seen.bytes_sent);
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    ready_[i].add(seen.ready_seconds[i]);
  }
  if (step < next_) {
    return;
  }
  const Clock::time_point start = Clock::now();
  const Agreed agreed = compare(step);
  learn(agreed.report);
  guard(step, agreed);
  if (auto change = controller_.update(step + 1, forecast(step + 1, &agreed.report))) {
    if (!reason_.empty() && change->reason == "quality") {
      change->reason = reason_;
    }
    take(controller_.levels());
    note(*change);
    // What was seen belongs to the levels that were.
    for (plan::Window* window : {&step_, &busy_, &wait_, &bytes_}) {
      window->clear();
    }
  }
  reason_.clear();
  if (!given_ && agreed.report.wait_share < kOnlyTheLink) {
    const double rate = calibration_.cluster.inter.bytes_per_second;
    const auto bytes = static_cast<std::uint64_t>(std::clamp(rate * kProbeSeconds, kLeastProbe, kMostProbe));
    const Neighbours neighbours = probe_neighbours();
    const double seconds =
        runner_.time_exchange(neighbours.to, neighbours.from, bytes) - calibration_.cluster.inter.latency_seconds;
    probed_.add(calibration_.cluster.ranks_per_node * static_cast<double>(bytes) / std::max(seconds, 1e-9));
  }
  compare_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
}

Neighbours Adaptation::probe_neighbours() const {
  if (calibration_.cluster.ranks_per_node > 1) {
    return neighbours_between(*plan_.tiers, runner_.rank());
  }
  const int world = runner_.world_size();
  return {(runner_.rank() + 1) % world, (runner_.rank() + world - 1) % world};
}

LinkReport Adaptation::report() const {
  LinkReport mine;
  mine.step_seconds = step_.median();
  mine.busy_seconds = busy_.median();
  mine.wait_share = busy_.median() > 0 ? std::min(1.0, wait_.median() / busy_.median()) : 0;
  mine.bytes_per_second = busy_.median() > 0 ? bytes_.median() / busy_.median() : 0;
  mine.probed = probed_.median();
  for (const plan::Window& ready : ready_) {
    mine.ready_seconds.push_back(ready.median());
  }
  return mine;
}

Adaptation::Agreed Adaptation::compare(std::uint64_t step) {
  const LinkReport mine = report();
  std::vector<double> numbers{static_cast<double>(step), compare_seconds_,      mine.step_seconds, mine.busy_seconds,
                              mine.wait_share,           mine.bytes_per_second, mine.probed};
  const std::size_t head = numbers.size();
  numbers.insert(numbers.end(), mine.ready_seconds.begin(), mine.ready_seconds.end());
  for (plan::QualitySample& sample : samples_) {
    numbers.insert(numbers.end(), {sample.nmse, sample.residual_ratio});
    sample = {};
  }
  Agreed agreed;
  agreed.samples.resize(samples_.size());
  std::vector<LinkReport> reports;
  double compare_seconds = 0;
  for (const std::vector<double>& theirs : gather_numbers(runner_, numbers, "the comparison of steps")) {
    if (theirs[0] != numbers[0]) {
      throw Error(ErrorCode::mismatch, "ranks compare steps " + std::to_string(step) + " and " +
                                           format_number(theirs[0]) + "; make the same calls on every rank");
    }
    compare_seconds = std::max(compare_seconds, theirs[1]);
    LinkReport& one = reports.emplace_back(LinkReport{theirs[2], theirs[3], theirs[4], theirs[5], theirs[6], {}});
    const auto ready = theirs.begin() + static_cast<std::ptrdiff_t>(head);
    one.ready_seconds.assign(ready, ready + static_cast<std::ptrdiff_t>(ready_.size()));
    auto next = ready + static_cast<std::ptrdiff_t>(ready_.size());
    for (plan::QualitySample& sample : agreed.samples) {
      const double nmse = *next++;
      sample = worse(sample, {nmse, *next++});
    }
  }
  agreed.report = combined(reports);
  // At first often, since little is known; in the long run no more than that share of the time.
  const double steps = std::min(compare_seconds / (kShareOfTime * std::max(agreed.report.step_seconds, 1e-6)),
                                static_cast<double>(step - first_) / 2);
  next_ = step + static_cast<std::uint64_t>(
                     std::clamp(steps, static_cast<double>(least_steps_), static_cast<double>(kMostSteps)));
  return agreed;
}

void Adaptation::learn(const LinkReport& report) {
  plan::LinkCost& inter = calibration_.cluster.inter;
  inter.bytes_per_second = bandwidth_after(inter.bytes_per_second, report);
  const double busy = forecast_busy();
  if (busy > 0 && report.busy_seconds > 0) {
    const double ratio = report.busy_seconds / busy;
    for (std::size_t i = 0; i < calibration_.buckets.size(); ++i) {
      auto& levels = calibration_.buckets[i].levels;
      if (!levels.empty()) {
        levels[choices_[i].level].correct(ratio);
      }
    }
  }
  const std::lock_guard lock(mutex_);
  link_ = to_estimate(calibration_.cluster, calibration_.seconds);
}

void Adaptation::guard(std::uint64_t step, const Agreed& agreed) {
  for (std::size_t i = 0; i < agreed.samples.size(); ++i) {
    const std::string why = guard_.observe(step, i, choices_[i].level, agreed.samples[i]);
    if (!why.empty()) {
      reason_ = "bucket " + std::to_string(i) + ": " + why;
    }
  }
}

double Adaptation::forecast_busy() const {
  double seconds = 0;
  for (std::size_t i = 0; i < calibration_.buckets.size(); ++i) {
    const auto& levels = calibration_.buckets[i].levels;
    if (levels.empty()) {
      return 0;  // part of what was seen has no forecast
    }
    seconds += levels[choices_[i].level].seconds(calibration_.cluster, static_cast<double>(plan_.buckets[i].count));
  }
  return seconds;
}

plan::StepForecast Adaptation::forecast(std::uint64_t step, const LinkReport* report) const {
  plan::StepForecast all;
  for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
    plan::BucketForecast& bucket = all.buckets.emplace_back();
    bucket.ready_seconds = report == nullptr ? 0 : report->ready_seconds[i];
    bucket.most = guard_.most(step, i);
    for (const plan::LevelForecast& level : calibration_.buckets[i].levels) {
      bucket.seconds.push_back(level.seconds(calibration_.cluster, static_cast<double>(plan_.buckets[i].count)));
    }
    if (bucket.seconds.empty()) {
      bucket.seconds.push_back(0);  // its codec is named
    }
    all.compute_seconds = std::max(all.compute_seconds, bucket.ready_seconds);
  }
  return all;
}

void Adaptation::take(const plan::Levels& levels) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const auto& ways = calibration_.buckets[i];
    choices_[i] = {levels[i], levels[i] == 0 && ways.native, plan_.chunk_bytes};
    if (!ways.levels.empty() && plan_.chunk_bytes == kDefaultChunkBytes) {
      choices_[i].chunk_bytes = plan::best_chunk_bytes(calibration_.cluster, ways.levels[levels[i]].way(),
                                                       static_cast<double>(plan_.buckets[i].count));
    }
  }
}

void Adaptation::note(const plan::Change& change) {
  std::map<std::pair<std::string, std::string>, std::size_t> moves;
  for (std::size_t i = 0; i < change.to.size(); ++i) {
    const plan::Bucket& bucket = plan_.buckets[i];
    if (!bucket.levels.empty() && (change.from.empty() || change.from[i] != change.to[i])) {
      ++moves[{change.from.empty() ? "" : level_name(bucket, change.from[i]), level_name(bucket, change.to[i])}];
    }
  }
  const std::lock_guard lock(mutex_);
  levels_ = change.to;
  for (const auto& [move, buckets] : moves) {
    switches_.push_back({change.step, move.first, move.second, buckets, change.reason});
    log(runner_.rank() == 0 ? LogLevel::info : LogLevel::debug,
        "codec from step " + std::to_string(change.step) + " on: " + (move.first.empty() ? "" : move.first + " -> ") +
            move.second + " in " + std::to_string(buckets) + " bucket(s); " + change.reason);
  }
}

LinkEstimate Adaptation::link() const {
  const std::lock_guard lock(mutex_);
  return link_;
}

std::vector<CodecSwitch> Adaptation::switches() const {
  const std::lock_guard lock(mutex_);
  return switches_;
}

std::string Adaptation::codec_text(std::size_t group) const {
  const std::lock_guard lock(mutex_);
  std::map<std::size_t, std::pair<std::string, std::size_t>> used;
  for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
    if (plan_.buckets[i].group == group && !plan_.buckets[i].levels.empty()) {
      auto& [name, buckets] = used[levels_[i]];
      name = level_name(plan_.buckets[i], levels_[i]);
      ++buckets;
    }
  }
  std::string text = "auto";
  for (const auto& [level, use] : used) {
    text += (text == "auto" ? ": " : ", ") + use.first + (used.size() > 1 ? " " + std::to_string(use.second) : "");
  }
  return text;
}

}  // namespace gradwire::session
