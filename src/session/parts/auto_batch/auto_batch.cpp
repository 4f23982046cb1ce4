#include "session/parts/auto_batch/auto_batch.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/log.hpp"
#include "base/units.hpp"

namespace gradwire::session {
namespace {

constexpr double kComparingShare = 3e-4;        // the share of the time for comparisons
constexpr double kComparingCredit = 50e-3;      // seconds for comparisons however short steps are, for a quick start
constexpr std::uint64_t kFreeComparisons = 10;  // comparisons at any cost, for the same reason
constexpr std::uint64_t kLeastBetweenComparing = 5;       // steps between comparisons that cost nothing
constexpr std::uint64_t kMostBetweenComparing = 100'000;  // steps
constexpr std::uint64_t kNoiseEvery = 4;                  // steps, so that norms cost a thousandth of the time
constexpr std::size_t kNoiseWindow = 24;                  // steps with norms
constexpr double kLeastNoiseSteps = 6;                    // with fewer steps, an estimate is chance
constexpr std::uint64_t kNoisePatience = 40;              // steps to wait for an estimate

}  // namespace

BatchReport combined(const std::vector<BatchReport>& reports) {
  BatchReport all = reports[0];
  all.noise = {};
  const auto count = static_cast<double>(reports.size());
  for (const BatchReport& one : reports) {
    all.step_seconds = std::max(all.step_seconds, one.step_seconds);
    all.compute_seconds = std::max(all.compute_seconds, one.compute_seconds);
    all.exposed_seconds = std::min(all.exposed_seconds, one.exposed_seconds);
    all.micro_steps = std::max(all.micro_steps, one.micro_steps);
    all.compare_seconds = std::max(all.compare_seconds, one.compare_seconds);
    all.noise.signal += one.noise.signal / count;
    all.noise.noise += one.noise.noise / count;
    all.noise_steps = std::min(all.noise_steps, one.noise_steps);
  }
  return all;
}

BatchSamples::BatchSamples(std::size_t window, int world_size, Reduction reduction)
    : world_size_(world_size),
      reduction_(reduction),
      step_(window),
      compute_(window),
      exposed_(window),
      micro_steps_(window),
      noise_(kNoiseWindow) {}

void BatchSamples::add_norms(std::uint64_t step, const choice::GradientNorms& of_bucket) {
  if (step != norms_step_) {
    norms_ = {};
    norms_step_ = step;
  }
  norms_.local += of_bucket.local;
  norms_.reduced += of_bucket.reduced;
}

void BatchSamples::add(std::uint64_t step, const StepSeen& seen) {
  const double micro_steps = seen.micro_steps;
  step_.add(seen.step_seconds);
  compute_.add(std::max(0.0, seen.step_seconds - seen.exposed_seconds) / micro_steps);
  exposed_.add(seen.exposed_seconds);
  micro_steps_.add(micro_steps);
  take_norms(step, micro_steps);
}

void BatchSamples::take_norms(std::uint64_t step, double micro_steps) {
  if (step != norms_step_) {
    return;
  }
  const double ranks = reduction_ == Reduction::sum ? world_size_ : 1;
  norms_.reduced /= ranks * ranks;
  noise_.add(choice::noise_terms(norms_, world_size_, micro_steps));
  norms_step_ = ~0ULL;
}

BatchReport BatchSamples::report() const {
  return {.step_seconds = step_.median(),
          .compute_seconds = compute_.median(),
          .exposed_seconds = exposed_.median(),
          .micro_steps = micro_steps_.median(),
          .noise = noise_.mean(),
          .noise_steps = static_cast<double>(noise_.count())};
}

BatchAdvice AutoBatch::initial(const Policy::Batch& batch) {
  const choice::BatchAdvisor advisor({.batch = batch});
  BatchAdvice advice;
  advice.accumulation = advisor.accumulation();
  advice.learning_rate_factor = advisor.learning_rate_factor();
  advice.reason = "nothing is measured yet";
  return advice;
}

AutoBatch::AutoBatch(Runner& runner, const Policy& policy, Reduction reduction)
    : runner_(runner),
      least_steps_(std::clamp<std::uint64_t>(policy.auto_options.dwell, 1, kLeastBetweenComparing)),
      advisor_({.batch = *policy.batch, .dwell = policy.auto_options.dwell}),
      samples_(policy.auto_options.window, runner.info().world_size, reduction),
      advice_(initial(*policy.batch)) {}

bool AutoBatch::looks_at_buckets(std::uint64_t step) const {
  return step % kNoiseEvery == 0 && runner_.info().world_size > 1;
}

void AutoBatch::bucket_ended(std::uint64_t step, const Buckets::Ended& bucket) {
  if (bucket.norms) {
    samples_.add_norms(step, *bucket.norms);
  }
}

void AutoBatch::step_ended(std::uint64_t step, const StepSeen& seen) {
  if (runner_.info().world_size == 1) {
    return;  // one rank has no exposed time
  }
  samples_.add(step, seen);
  if (!next_) {
    first_ = last_ = step;
    next_ = step + least_steps_;
  }
}

void AutoBatch::append(std::vector<double>& numbers) {
  const BatchReport mine = samples_.report();
  numbers.insert(numbers.end(), {mine.step_seconds, mine.compute_seconds, mine.exposed_seconds, mine.micro_steps,
                                 mine.noise.signal, mine.noise.noise, mine.noise_steps});
}

void AutoBatch::take(const Compared& compared) {
  std::vector<BatchReport> reports;
  for (const std::span<const double> theirs : compared.ranks) {
    reports.push_back({.step_seconds = theirs[0],
                       .compute_seconds = theirs[1],
                       .exposed_seconds = theirs[2],
                       .micro_steps = theirs[3],
                       .compare_seconds = compared.seconds,
                       .noise = {theirs[4], theirs[5]},
                       .noise_steps = theirs[6]});
  }
  const BatchReport agreed = combined(reports);
  plan_next(compared.step, agreed);
  decide(compared.step + 1, agreed);
}

void AutoBatch::plan_next(std::uint64_t step, const BatchReport& agreed) {
  last_ = step;
  spent_ += agreed.compare_seconds;
  const bool free = ++compared_ < kFreeComparisons || spent_ < kComparingCredit;
  const double steps = free ? 0 : agreed.compare_seconds / (kComparingShare * std::max(agreed.step_seconds, 1e-6));
  next_ = step + static_cast<std::uint64_t>(
                     std::clamp(steps, static_cast<double>(least_steps_), static_cast<double>(kMostBetweenComparing)));
}

void AutoBatch::decide(std::uint64_t step, const BatchReport& agreed) {
  choice::BatchForecast forecast{.compute_seconds = agreed.compute_seconds,
                                 .exposed_seconds = agreed.exposed_seconds,
                                 .ranks = runner_.info().world_size};
  if (agreed.noise_steps >= kLeastNoiseSteps) {
    forecast.noise_scale = choice::noise_scale(agreed.noise);
  }
  // A batch that is too large early in a training wastes samples, so this waits for the noise scale if there can be
  // one.
  const bool decides = forecast.noise_scale || step > *first_ + kNoisePatience;
  const std::optional<std::string> why = decides ? advisor_.update(step, forecast) : std::nullopt;
  const MutexLock lock(mutex_);
  advice_.exposed_share = choice::exposed_share(forecast, agreed.micro_steps);
  advice_.noise_scale = forecast.noise_scale;
  if (why) {
    advice_.accumulation = advisor_.accumulation();
    advice_.learning_rate_factor = advisor_.learning_rate_factor();
    advice_.step = step;
    advice_.reason = *why;
    log(runner_.info().rank == 0 ? LogLevel::info : LogLevel::debug,
        "batch advice from step " + std::to_string(step) + " on: accumulate " + std::to_string(advice_.accumulation) +
            " micro-steps; " + *why);
  }
}

BatchAdvice AutoBatch::advice() const {
  const MutexLock lock(mutex_);
  return advice_;
}

std::unique_ptr<Part> make_auto_batch(const PartInputs& inputs) {
  if (!inputs.plan->batch) {
    return nullptr;
  }
  if (inputs.runner.probes() == nullptr) {
    log(inputs.runner.info().rank == 0 ? LogLevel::warning : LogLevel::debug,
        "[batch] gives no advice over device memory yet");
    return nullptr;
  }
  return std::make_unique<AutoBatch>(inputs.runner, inputs.policy, inputs.options.reduction);
}

}  // namespace gradwire::session
