// The table of records and its plot.
#pragma once

#include <string>

#include "bench/records/campaign.hpp"
#include "bench/support/report.hpp"
#include "bench/support/table.hpp"

namespace gradwire::records {

/// What was trained, how, and how much of it has been.
[[nodiscard]] std::string describe(const Campaign& campaign);
/// A line for each row and data.
[[nodiscard]] bench::Table make_table(const Campaign& campaign);
[[nodiscard]] bench::Json make_json(const Campaign& campaign);
/// Loss over bits, a point for each row, and the front: rows that no other beats in both.
[[nodiscard]] std::string plot(const Campaign& campaign);

}  // namespace gradwire::records
