// Mean and standard error over seeds.
#pragma once

#include <span>

namespace gradwire::convergence {

struct Summary {
  double mean = 0;            // NaN if any value is
  double standard_error = 0;  // of the mean; NaN for fewer than two values
};

/// Values of at least one seed.
[[nodiscard]] Summary summarize(std::span<const double> values);

/// Mean - standard error <= bound: a mean above it by less than its own error says nothing. NaN never meets it.
[[nodiscard]] bool meets(const Summary& summary, double bound);

}  // namespace gradwire::convergence
