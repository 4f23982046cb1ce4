// Advises on the batch while a training runs: watches steps and how noisy their gradients are, and at steps that all
// ranks know lets them compare what they saw and decide alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "choice/batch_advisor.hpp"
#include "choice/noise_scale.hpp"
#include "choice/window.hpp"
#include "gradwire/session.hpp"
#include "session/part/part.hpp"

namespace gradwire::session {

/// What a rank reports of its last steps: medians, and means for the noise.
struct BatchReport {
  double step_seconds = 0;
  double compute_seconds = 0;  // of one micro-step
  double exposed_seconds = 0;  // of one step
  double micro_steps = 1;      // of one step, as counted
  double compare_seconds = 0;  // what the comparison before took
  choice::NoiseTerms noise = {};
  double noise_steps = 0;  // that they rest on
};

/// One view of all ranks: the slowest one's computation, the wait of the one that waited least, since others wait for
/// ranks and not for the network; mean noise.
[[nodiscard]] BatchReport combined(const std::vector<BatchReport>& reports);

/// What this rank saw of its last steps.
class BatchSamples {
 public:
  /// `window`: steps. `world_size` ranks add up gradients to `reduction`.
  BatchSamples(std::size_t window, int world_size, Reduction reduction);

  void add_norms(std::uint64_t step, const choice::GradientNorms& of_bucket);
  /// `step` has ended, and all norms of its buckets have come.
  void add(std::uint64_t step, const StepSeen& seen);
  [[nodiscard]] BatchReport report() const;

 private:
  void take_norms(std::uint64_t step, double micro_steps);

  int world_size_;
  Reduction reduction_;
  choice::Window step_, compute_, exposed_, micro_steps_;
  choice::NoiseWindow noise_;
  choice::GradientNorms norms_;  // of the step below, over its buckets
  std::uint64_t norms_step_ = ~0ULL;
};

class AutoBatch final : public Part, public ComparedPart, public Tuner {
 public:
  /// The policy has [batch]. `runner` must outlive this.
  AutoBatch(Runner& runner, const Policy& policy, Reduction reduction);

  /// Before the first step.
  [[nodiscard]] static BatchAdvice initial(const Policy::Batch& batch);

  [[nodiscard]] std::string_view name() const noexcept override { return "batch advice"; }
  [[nodiscard]] ComparedPart* compared() noexcept override { return this; }
  [[nodiscard]] Tuner* tuner() noexcept override { return this; }

  /// Whether runners take norms in the step.
  void tune(StepInfo& info) const override { info.norms = looks_at_buckets(info.step); }
  [[nodiscard]] bool looks_at_buckets(std::uint64_t step) const override;
  void bucket_ended(std::uint64_t step, const Buckets::Ended& bucket) override;
  /// At steps that all ranks know they compare afterwards and decide for the next one.
  void step_ended(std::uint64_t step, const StepSeen& seen) override;
  [[nodiscard]] bool due(std::uint64_t step) const override { return next_ && step >= *next_; }
  [[nodiscard]] bool rides(std::uint64_t step) const override { return next_ && step >= last_ + least_steps_; }
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

  /// Any thread.
  [[nodiscard]] BatchAdvice advice() const;

 private:
  void plan_next(std::uint64_t step, const BatchReport& agreed);
  void decide(std::uint64_t step, const BatchReport& agreed);

  Runner& runner_;
  std::uint64_t least_steps_;  // between two comparisons
  choice::BatchAdvisor advisor_;
  BatchSamples samples_;
  std::optional<std::uint64_t> next_;  // the step after which ranks compare
  std::optional<std::uint64_t> first_;
  std::uint64_t last_ = 0;  // step after which they did, or the first one
  double spent_ = 0;        // seconds on comparisons, the slowest rank of each
  std::uint64_t compared_ = 0;

  mutable Mutex mutex_;
  BatchAdvice advice_ GUARDED_BY(mutex_);  // other threads ask for it
};

/// Null where the policy has no [batch].
[[nodiscard]] std::unique_ptr<Part> make_auto_batch(const PartInputs& inputs);

}  // namespace gradwire::session
