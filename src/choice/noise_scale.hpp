// How noisy gradients are, from norms of one rank's gradient and of the mean over ranks: what a larger batch is worth.
// McCandlish, Kaplan and Amodei, "An Empirical Model of Large-Batch Training", 2018, appendix A.1. No clocks, no ranks.
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

/// `ranks` >= 2; `micro_steps` that each rank's gradient is the mean of. Linear in the norms: averages over ranks and
/// steps are as good.
[[nodiscard]] NoiseTerms noise_terms(const GradientNorms& norms, int ranks, double micro_steps);

/// noise / signal: the batch, in micro-steps of one rank, from which on a step's gain from more samples falls below
/// half of theirs. 0 where there is no noise, infinite where it hides the gradient.
[[nodiscard]] double noise_scale(const NoiseTerms& mean);

/// The last few steps' terms; their mean comes before the division, since single steps are far off.
class NoiseWindow {
 public:
  explicit NoiseWindow(std::size_t size) : size_(size) {}
  /// Values that are not finite are left out.
  void add(const NoiseTerms& terms);
  [[nodiscard]] std::size_t count() const noexcept { return terms_.size(); }
  /// Zeros of nothing.
  [[nodiscard]] NoiseTerms mean() const;

 private:
  std::size_t size_;
  std::deque<NoiseTerms> terms_;
};

}  // namespace gradwire::choice
