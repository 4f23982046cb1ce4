// Advises how many micro-steps a rank should accumulate for each reduction, so that the network keeps up. Decides from
// times and a noise scale that all ranks share, so that all ranks decide the same. No clocks, no ranks, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gradwire/policy.hpp"

namespace gradwire::choice {

/// The times of a step, as all ranks agreed, and the noise of its gradients.
struct BatchForecast {
  double compute_seconds = 0;                        // of one micro-step
  double exposed_seconds = 0;                        // of one reduction: communication that no computation hid
  std::optional<double> noise_scale = std::nullopt;  // in micro-steps of one rank; none: not measured
  int ranks = 1;
};

/// The share of a step of `accumulation` micro-steps that is exposed communication.
[[nodiscard]] double exposed_share(const BatchForecast& forecast, double accumulation);

struct BatchAdvisorOptions {
  Policy::Batch batch = {};
  std::uint64_t dwell = 20;  // steps between two changes
  double headroom = 1.1;  // factor on the exposed seconds when accumulation grows, so that it need not soon grow again
  double margin = 1.5;    // factor on the exposed seconds, and on the noise scale, before accumulation falls
};

/// Moves towards the fewest micro-steps that keep the exposed share at or below its target: at most twice or half as
/// many at a time, within the policy's bounds; and all ranks' micro-steps together stay within the noise scale.
class BatchAdvisor {
 public:
  explicit BatchAdvisor(const BatchAdvisorOptions& options)
      : options_(options), accumulation_(options.batch.min_accumulation) {}

  /// To be called after step `step - 1`. Returns why the accumulation changes from `step` on; no value if it does not.
  /// A forecast without compute time changes nothing.
  std::optional<std::string> update(std::uint64_t step, const BatchForecast& forecast);

  [[nodiscard]] std::uint32_t accumulation() const noexcept { return accumulation_; }
  /// The factor on the learning rate, relative to a step of one micro-step.
  [[nodiscard]] double learning_rate_factor() const;

 private:
  // The fewest micro-steps within bounds, if exposed seconds and noise scale were larger by these factors.
  [[nodiscard]] std::uint32_t wanted(const BatchForecast& forecast, double exposed_factor, double noise_factor) const;

  BatchAdvisorOptions options_;
  std::uint32_t accumulation_;
  std::uint64_t changed_ = 0;
};

}  // namespace gradwire::choice
