// Computes mean and standard error over seeds.
#pragma once

#include <span>

namespace gradwire::convergence {

struct Summary {
  double mean = 0;            // NaN if any value is NaN
  double standard_error = 0;  // of the mean; NaN for fewer than two values
};

/// Summarizes the values of one or more seeds.
[[nodiscard]] Summary summarize(std::span<const double> values);

/// Returns whether mean - standard error <= bound: a mean above the bound by less than its own error does not count as
/// a miss. NaN never meets it.
[[nodiscard]] bool meets(const Summary& summary, double bound);

}  // namespace gradwire::convergence
