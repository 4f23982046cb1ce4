// Formats rows as a table, JSON and plots.
#pragma once

#include <string>
#include <vector>

#include "bench/convergence/comparison.hpp"
#include "bench/support/report.hpp"

namespace gradwire::convergence {

/// Returns a text table, with a line for each bound that a row must meet.
[[nodiscard]] std::string to_text(const std::vector<Row>& rows, const std::string& link);
[[nodiscard]] bench::Json to_json(const Row& row);
/// Plots loss against megabytes sent: the policies as written, with error feedback switched, and second hops of topk.
[[nodiscard]] std::string plot(const std::vector<Row>& rows);

}  // namespace gradwire::convergence
