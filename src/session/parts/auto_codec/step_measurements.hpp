// StepMeasurements holds what a rank has measured of its latest steps, and combines it with what other ranks have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "choice/auto_choice.hpp"
#include "choice/moving_median.hpp"
#include "session/part/step_comparison.hpp"
#include "session/runner/runner.hpp"
#include "session/step/step_watch.hpp"

namespace gradwire::session {

class StepMeasurements {
 public:
  /// Each median is taken of the last `window` steps.
  StepMeasurements(std::size_t buckets, std::size_t window);

  void add(const StepSeen& seen);
  /// Takes the sample of the codec's error, if the bucket has one.
  void add(const Buckets::Ended& bucket);
  void add_probe(double bytes_per_second) { probed_.add(bytes_per_second); }
  /// Forgets how long steps took, since coming steps have other codecs. When gradients are ready does not change.
  void forget_steps();

  /// Appends this rank's numbers for a comparison, and forgets its samples.
  void append(std::vector<double>& numbers);

  /// The measurements of all ranks, the same on every rank.
  struct Agreed {
    choice::LinkReport report;
    std::vector<choice::QualitySample> samples;  // by bucket: the worst sample of all ranks
  };
  /// Combines the numbers that ranks have appended.
  [[nodiscard]] Agreed agree(const ComparedPart::Compared& compared) const;

 private:
  [[nodiscard]] choice::LinkReport report() const;

  std::vector<choice::QualitySample> samples_;  // by bucket, since the last comparison
  choice::MovingMedian step_, busy_, wait_, bytes_, probed_;
  std::vector<choice::MovingMedian> ready_;  // by bucket
};

}  // namespace gradwire::session
