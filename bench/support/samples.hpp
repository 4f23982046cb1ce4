// Computes statistics of repeated timings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace gradwire::bench {

/// Returns the value below which `fraction` of the samples are, interpolated linearly. Needs at least one sample.
inline double quantile(std::vector<double> samples, double fraction) {
  if (samples.empty()) {
    throw std::invalid_argument("quantile of no samples");
  }
  std::sort(samples.begin(), samples.end());
  const double place = fraction * static_cast<double>(samples.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, samples.size() - 1);
  return samples[low] + (place - static_cast<double>(low)) * (samples[high] - samples[low]);
}

inline double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

}  // namespace gradwire::bench
