// Estimates the noise of gradients from norms of one rank's gradient and of the mean over ranks; it tells what a larger
// batch is worth. McCandlish, Kaplan and Amodei, "An Empirical Model of Large-Batch Training", 2018, appendix A.1. No
// clocks, no ranks.
#pragma once

#include <cstddef>
#include <deque>

namespace gradwire::choice {

/// Squared norms of one step's gradient, over the same elements.
struct GradientNorms {
  double local = 0;    // of this rank's, over all its micro-steps
  double reduced = 0;  // of the mean over the ranks
};

/// Unbiased estimates from one step. The mean over a micro-step's samples is the true gradient plus noise.
struct NoiseTerms {
  double signal = 0;  // squared norm of the true gradient
  double noise = 0;   // trace of the covariance of one micro-step's gradient
};

/// `ranks` >= 2; each rank's gradient is the mean of `micro_steps`. The result is linear in the norms, so norms may be
/// averages over ranks and steps.
[[nodiscard]] NoiseTerms noise_terms(const GradientNorms& norms, int ranks, double micro_steps);

/// noise / signal: the batch, in micro-steps of one rank, from which on more samples improve a step by less than half
/// of their share. 0 without noise, infinite if the noise hides the gradient.
[[nodiscard]] double noise_scale(const NoiseTerms& mean);

/// The terms of the last few steps. They are averaged before the division, since single steps are far off.
class NoiseWindow {
 public:
  explicit NoiseWindow(std::size_t size) : size_(size) {}
  /// Ignores values that are not finite.
  void add(const NoiseTerms& terms);
  [[nodiscard]] std::size_t count() const noexcept { return terms_.size(); }
  /// The mean of the terms; zeros if there are none.
  [[nodiscard]] NoiseTerms mean() const;

 private:
  std::size_t size_;
  std::deque<NoiseTerms> terms_;
};

}  // namespace gradwire::choice
