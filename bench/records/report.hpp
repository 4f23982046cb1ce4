// Makes the table of records and its plot.
#pragma once

#include <string>

#include "bench/records/campaign.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"

namespace gradwire::records {

/// Returns a description of the trainings and how many of them are made.
[[nodiscard]] std::string describe(const Campaign& campaign);
/// Returns the table, with a line for each row and kind of data.
[[nodiscard]] bench::TextTable make_table(const Campaign& campaign);
[[nodiscard]] bench::Json make_json(const Campaign& campaign);
/// Plots loss over bits, with a point for each row, and the front: the rows that no other beats in both.
[[nodiscard]] std::string plot(const Campaign& campaign);

}  // namespace gradwire::records
