#include "bench/convergence/statistics.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace gradwire::convergence {

Summary summarize(std::span<const double> values) {
  if (values.empty()) {
    throw std::invalid_argument("summary of no values");
  }
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
  }
  const double mean = sum / count;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return {mean,
          values.size() < 2 ? std::numeric_limits<double>::quiet_NaN() : std::sqrt(squares / (count - 1) / count)};
}

bool meets(const Summary& summary, double bound) {
  return summary.mean - (std::isnan(summary.standard_error) ? 0 : summary.standard_error) <= bound;
}

}  // namespace gradwire::convergence
