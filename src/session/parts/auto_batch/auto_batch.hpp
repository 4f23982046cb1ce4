// Advises on the batch while a training runs: watches steps and the noise of their gradients, and lets ranks compare
// their measurements at steps that all ranks know, so that they decide alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "choice/batch_advisor.hpp"
#include "choice/moving_median.hpp"
#include "choice/noise_scale.hpp"
#include "gradwire/session.hpp"
#include "session/part/part.hpp"

namespace gradwire::session {

/// A rank's report on its last steps: medians, and means for the noise.
struct BatchReport {
  double step_seconds = 0;
  double compute_seconds = 0;  // of one micro-step
  double exposed_seconds = 0;  // of one step
  double micro_steps = 1;      // of one step, as counted
  double compare_seconds = 0;  // time of the previous comparison
  choice::NoiseTerms noise = {};
  double noise_steps = 0;  // steps that the means rest on
};

/// Returns one view of all ranks: the computation of the slowest rank, the mean noise, and the wait of the rank that
/// waited least, since the other ranks wait for ranks and not for the network.
[[nodiscard]] BatchReport combined(const std::vector<BatchReport>& reports);

/// This rank's measurements of its last steps.
class BatchSamples {
 public:
  /// `window` is a number of steps. `world_size` ranks reduce gradients by `reduction`.
  BatchSamples(std::size_t window, int world_size, Reduction reduction);

  void add_norms(std::uint64_t step, const choice::GradientNorms& of_bucket);
  /// Adds `step`, which has ended; the norms of all its buckets were added before.
  void add(std::uint64_t step, const StepSeen& seen);
  [[nodiscard]] BatchReport report() const;

 private:
  void take_norms(std::uint64_t step, double micro_steps);

  int world_size_;
  Reduction reduction_;
  choice::MovingMedian step_, compute_, exposed_, micro_steps_;
  choice::NoiseWindow noise_;
  choice::GradientNorms norms_;  // of the step norms_step_, summed over its buckets
  std::uint64_t norms_step_ = ~0ULL;
};

class AutoBatch final : public Part, public ComparedPart, public Tuner {
 public:
  /// The policy must have [batch]. `runner` must outlive this.
  AutoBatch(Runner& runner, const Policy& policy, Reduction reduction);

  /// Returns the advice before the first step.
  [[nodiscard]] static BatchAdvice initial(const Policy::Batch& batch);

  [[nodiscard]] std::string_view name() const noexcept override { return "batch advice"; }
  [[nodiscard]] ComparedPart* compared() noexcept override { return this; }
  [[nodiscard]] Tuner* tuner() noexcept override { return this; }

  /// Says whether runners measure norms in the step.
  void tune(StepInfo& info) const override { info.norms = looks_at_buckets(info.step); }
  [[nodiscard]] bool looks_at_buckets(std::uint64_t step) const override;
  void bucket_ended(std::uint64_t step, const Buckets::Ended& bucket) override;
  /// Adds a step. At steps that all ranks know, ranks compare their measurements afterwards and decide for the next
  /// step.
  void step_ended(std::uint64_t step, const StepSeen& seen) override;
  [[nodiscard]] bool due(std::uint64_t step) const override { return next_ && step >= *next_; }
  [[nodiscard]] bool rides(std::uint64_t step) const override { return next_ && step >= last_ + least_steps_; }
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

  /// Any thread may call this.
  [[nodiscard]] BatchAdvice advice() const;

 private:
  void plan_next(std::uint64_t step, const BatchReport& agreed);
  void decide(std::uint64_t step, const BatchReport& agreed);

  Runner& runner_;
  std::uint64_t least_steps_;  // between comparisons
  choice::BatchAdvisor advisor_;
  BatchSamples samples_;
  std::optional<std::uint64_t> next_;  // the step after which ranks compare
  std::optional<std::uint64_t> first_;
  std::uint64_t last_ = 0;  // the step after which ranks last compared, or the first one
  double spent_ = 0;        // seconds on comparisons, by the slowest rank of each
  std::uint64_t compared_ = 0;

  mutable Mutex mutex_;
  BatchAdvice advice_ GUARDED_BY(mutex_);  // other threads ask for it
};

/// Returns null if the policy has no [batch], and over device memory.
[[nodiscard]] std::unique_ptr<Part> make_auto_batch(const PartInputs& inputs);

}  // namespace gradwire::session
