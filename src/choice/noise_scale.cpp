#include "choice/noise_scale.hpp"

#include <cmath>
#include <limits>

namespace gradwire::choice {

NoiseTerms noise_terms(const GradientNorms& norms, int ranks, double micro_steps) {
  // With batches Bs = micro_steps and Bb = ranks * Bs: E|g|^2 = signal + noise / B for both.
  const double world = ranks;
  return {(world * norms.reduced - norms.local) / (world - 1),
          micro_steps * world * (norms.local - norms.reduced) / (world - 1)};
}

double noise_scale(const NoiseTerms& mean) {
  if (!(mean.noise > 0)) {
    return 0;
  }
  return mean.signal > 0 ? mean.noise / mean.signal : std::numeric_limits<double>::infinity();
}

void NoiseWindow::add(const NoiseTerms& terms) {
  if (!std::isfinite(terms.signal) || !std::isfinite(terms.noise)) {
    return;
  }
  terms_.push_back(terms);
  if (terms_.size() > size_) {
    terms_.pop_front();
  }
}

NoiseTerms NoiseWindow::mean() const {
  NoiseTerms sum;
  for (const NoiseTerms& terms : terms_) {
    sum.signal += terms.signal;
    sum.noise += terms.noise;
  }
  const double count = terms_.empty() ? 1 : static_cast<double>(terms_.size());
  return {sum.signal / count, sum.noise / count};
}

}  // namespace gradwire::choice
