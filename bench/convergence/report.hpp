// Rows as a table, JSON and plots.
#pragma once

#include <string>
#include <vector>

#include "bench/convergence/comparison.hpp"
#include "bench/support/report.hpp"

namespace gradwire::convergence {

/// For people; with a line for each bound that was asked of a row.
[[nodiscard]] std::string to_text(const std::vector<Row>& rows, const std::string& link);
[[nodiscard]] bench::Json to_json(const Row& row);
/// Loss against megabytes sent: as the policies say, the other way round, and second hops of topk.
[[nodiscard]] std::string plot(const std::vector<Row>& rows);

}  // namespace gradwire::convergence
