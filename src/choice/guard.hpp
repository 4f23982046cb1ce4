// Keeps a codec that is chosen at run time from harming a training: looks at what encoding drops and takes the codec of
// a bucket back by one level where that runs away. A pure function of samples that all ranks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::choice {

/// What one encoding of one bucket dropped.
struct QualitySample {
  double nmse = 0;            // |Q(p) - p|^2 / |p|^2 of what was encoded
  double residual_ratio = 0;  // |residual| / |gradient|, 0 without error feedback
};

/// What a residual may grow to beside the gradient: error feedback over a compressor with this NMSE stays below
/// sqrt(nmse) / (1 - sqrt(nmse)) (Karimireddy et al., "Error feedback fixes SignSGD", 2019, lemma 3). Infinite from 1
/// on, where it has no bound.
[[nodiscard]] double steady_residual(double nmse);

struct GuardOptions {
  double slack = 4;           // times the bound of a residual, since gradients shrink as a training goes on
  double least = 1;           // a residual below this share of the gradient is no run-away
  double worst_nmse = 0.98;   // from here on a codec is no contraction
  std::uint64_t hold = 200;   // steps without the level that ran away; twice as many each time
  std::uint64_t warmup = 50;  // steps in which 8 bits an element are the least
  double warmup_bits = 8;
};

/// For all buckets of a session.
class Guard {
 public:
  /// `bits[bucket][level]`: bits an element takes on the wire.
  Guard(GuardOptions options, std::vector<std::vector<double>> bits);

  /// A training begins or resumes at this step.
  void begin(std::uint64_t step);
  /// Of bucket and level at this step; any rank's. Returns why the level is given up, or an empty text.
  std::string observe(std::uint64_t step, std::size_t bucket, std::size_t level, const QualitySample& sample);
  /// The last level that the bucket may take at this step.
  [[nodiscard]] std::size_t most(std::uint64_t step, std::size_t bucket) const;

 private:
  struct Ceiling {
    std::size_t most = 0;
    std::uint64_t until = 0;
    std::uint64_t hold = 0;
  };
  GuardOptions options_;
  std::vector<std::vector<double>> bits_;
  std::vector<Ceiling> ceilings_;
  std::uint64_t begun_ = 0;
};

}  // namespace gradwire::choice
