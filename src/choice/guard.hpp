// Keeps a codec that is chosen at run time from harming a training: it watches the error of encoding and takes the
// codec of a bucket back by one level if the error grows without bound. It is a pure function of samples that all ranks
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::choice {

/// The error of one encoding of one bucket.
struct QualitySample {
  double nmse = 0;            // |Q(p) - p|^2 / |p|^2, where p was encoded
  double residual_ratio = 0;  // |residual| / |gradient|, 0 without error feedback
};

/// The bound of |residual| / |gradient|: with a compressor of this NMSE, error feedback keeps it below sqrt(nmse) / (1
/// - sqrt(nmse)) (Karimireddy et al., "Error feedback fixes SignSGD", 2019, lemma 3). Infinite from an NMSE of 1 on.
[[nodiscard]] double steady_residual(double nmse);

struct GuardOptions {
  double slack = 4;           // factor on the bound of a residual, since gradients shrink during a training
  double least = 1;           // a residual below this share of the gradient is always accepted
  double worst_nmse = 0.98;   // from here on a codec is no contraction
  std::uint64_t hold = 200;   // steps for which a level stays taken back; doubled each time
  std::uint64_t warmup = 50;  // steps with at least 8 bits per element
  double warmup_bits = 8;
};

/// Guards all buckets of a session.
class Guard {
 public:
  /// `bits[bucket][level]` is the number of bits of an element on the wire.
  Guard(GuardOptions options, std::vector<std::vector<double>> bits);

  /// To be called when a training begins or resumes at this step.
  void begin(std::uint64_t step);
  /// Takes any rank's sample of bucket and level at this step. Returns why the level is given up, or an empty text.
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
