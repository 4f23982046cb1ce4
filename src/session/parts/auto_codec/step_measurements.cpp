#include "session/parts/auto_codec/step_measurements.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace gradwire::session {
namespace {

constexpr std::size_t kProbes = 3;

choice::QualitySample worse(const choice::QualitySample& a, const choice::QualitySample& b) {
  const auto most = [](double x, double y) { return std::isnan(x) || x > y ? x : y; };
  return {most(a.nmse, b.nmse), most(a.residual_ratio, b.residual_ratio)};
}

}  // namespace

StepMeasurements::StepMeasurements(std::size_t buckets, std::size_t window)
    : samples_(buckets),
      step_(window),
      busy_(window),
      wait_(window),
      bytes_(window),
      probed_(kProbes),
      ready_(buckets, choice::MovingMedian(window)) {}

void StepMeasurements::add(const StepSeen& seen) {
  step_.add(seen.step_seconds);
  busy_.add(seen.busy_seconds);
  wait_.add(seen.wait_seconds);
  bytes_.add(seen.bytes_sent);
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    ready_[i].add(seen.ready_seconds[i]);
  }
}

void StepMeasurements::add(const Buckets::Ended& bucket) {
  if (bucket.sample) {
    samples_[bucket.bucket] = worse(samples_[bucket.bucket], *bucket.sample);
  }
}

void StepMeasurements::forget_steps() {
  for (choice::MovingMedian* window : {&step_, &busy_, &wait_, &bytes_}) {
    window->clear();
  }
}

choice::LinkReport StepMeasurements::report() const {
  choice::LinkReport mine;
  mine.step_seconds = step_.median();
  mine.busy_seconds = busy_.median();
  mine.wait_share = busy_.median() > 0 ? std::min(1.0, wait_.median() / busy_.median()) : 0;
  mine.bytes_per_second = busy_.median() > 0 ? bytes_.median() / busy_.median() : 0;
  mine.probed = probed_.median();
  for (const choice::MovingMedian& ready : ready_) {
    mine.ready_seconds.push_back(ready.median());
  }
  return mine;
}

void StepMeasurements::append(std::vector<double>& numbers) {
  const choice::LinkReport mine = report();
  numbers.insert(numbers.end(),
                 {mine.step_seconds, mine.busy_seconds, mine.wait_share, mine.bytes_per_second, mine.probed});
  numbers.insert(numbers.end(), mine.ready_seconds.begin(), mine.ready_seconds.end());
  for (choice::QualitySample& sample : samples_) {
    numbers.insert(numbers.end(), {sample.nmse, sample.residual_ratio});
    sample = {};
  }
}

StepMeasurements::Agreed StepMeasurements::agree(const ComparedPart::Compared& compared) const {
  constexpr std::size_t kHead = 5;
  Agreed agreed;
  agreed.samples.resize(samples_.size());
  std::vector<choice::LinkReport> reports;
  for (const std::span<const double> theirs : compared.ranks) {
    choice::LinkReport& one =
        reports.emplace_back(choice::LinkReport{theirs[0], theirs[1], theirs[2], theirs[3], theirs[4], {}});
    const std::span<const double> ready = theirs.subspan(kHead, ready_.size());
    one.ready_seconds.assign(ready.begin(), ready.end());
    auto next = theirs.subspan(kHead + ready_.size()).begin();
    for (choice::QualitySample& sample : agreed.samples) {
      const double nmse = *next++;
      sample = worse(sample, {nmse, *next++});
    }
  }
  agreed.report = combined(reports);
  return agreed;
}

}  // namespace gradwire::session
