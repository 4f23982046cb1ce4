// Prints and writes the results of bench_changing_link.
#pragma once

#include <string>

#include "bench/changing_link/comparison.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"

namespace gradwire::changing_link {

[[nodiscard]] std::string describe(const Comparison& comparison);
[[nodiscard]] bench::TextTable make_table(const Comparison& comparison);
[[nodiscard]] bench::Json make_json(const Comparison& comparison);
/// Plots bandwidth, the codec in use and the step time, one below the other, over the schedule's time.
[[nodiscard]] std::string plot(const Comparison& comparison);

}  // namespace gradwire::changing_link
